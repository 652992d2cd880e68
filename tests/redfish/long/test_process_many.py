"""A cell of two hundred machines, half of which become Nodes and leave again."""

from pathlib import Path

import pytest

from redfish.cell import at_work, audit_round, make_nodes, remove_nodes
from redfish.emulator import emulator
from redfish.site import a_site

MACHINES, NODES = 200, 100
PATIENCE_S = 900.0
"""One emulator answers some forty requests per second for all machines."""


@pytest.mark.timeout(PATIENCE_S)
async def test_a_hundred_of_two_hundred_machines_become_nodes_and_are_wiped(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # In the short form, a fifth of them.
    share = 5 if request.config.getoption("--short") else 1
    count, nodes = MACHINES // share, NODES // share
    with emulator(tmp_path) as machines:
        async with a_site(machines, tmp_path, count, wipes=True) as site:
            with at_work(site, hurry=False):
                await site.until_free(count, PATIENCE_S)
                await make_nodes(site, nodes, PATIENCE_S)
                await remove_nodes(site, nodes, PATIENCE_S)

            audit_round(site, nodes)
