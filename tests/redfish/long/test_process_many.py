"""A cell of two hundred machines, half of which go from one organisation to another one."""

from pathlib import Path

import pytest

from redfish.audit import Handover, audit, list_handovers
from redfish.cell import (
    FIRST,
    SECOND,
    at_work,
    audit_round,
    keep_unused_back,
    make_nodes,
    remove_nodes,
)
from redfish.emulator import emulator
from redfish.site import a_site

MACHINES, NODES = 200, 100
PATIENCE_S = 900.0
"""One emulator answers some forty requests per second for all machines."""


@pytest.mark.timeout(PATIENCE_S)
async def test_a_hundred_of_two_hundred_machines_are_wiped_before_another_organisation_has_them(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # In the short form, a fifth of them.
    share = 5 if request.config.getoption("--short") else 1
    count, nodes = MACHINES // share, NODES // share
    with emulator(tmp_path) as machines:
        async with a_site(machines, tmp_path, count, wipes=True) as site:
            site.boots = [FIRST.boot, SECOND.boot]
            site.declare()
            with at_work(site, hurry=False):
                # given an organisation that has had half of the machines
                await site.until_free(count, PATIENCE_S)
                await make_nodes(site, nodes, PATIENCE_S)
                await remove_nodes(site, nodes, PATIENCE_S)
                audit_round(site, nodes)

                # when another one needs as many, and no other machine is free
                await keep_unused_back(site, PATIENCE_S)
                await make_nodes(site, nodes, PATIENCE_S, SECOND)

            # then it has these machines, and each of them was wiped between
            audit(site)
            handovers = [each for rig in site.rigs.values() for each in list_handovers(rig.history)]
            assert handovers == [Handover(FIRST.org, SECOND.org, is_wiped=True)] * nodes
