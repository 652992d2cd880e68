"""A NodePool powers real machines on, and its machines are wiped after it."""

from pathlib import Path

from nodepool.contract.events import CWNodeRegistered
from redfish.cell import at_work, audit_round, make_nodes, remove_nodes
from redfish.emulator import Emulator
from redfish.site import a_site

STATE = "node.coreweave.cloud/state"


async def test_a_node_pool_powers_machines_on_and_leaves_them_wiped_and_off(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 4, wipes=True) as site:
        with at_work(site):
            await site.until_free(4)
            await make_nodes(site, 3, 60)
            # Each Node is in test until a complete reading has verified its machine.
            registered = site.said(CWNodeRegistered)
            assert [each.labels[STATE] for each in registered] == ["test"] * 3
            await remove_nodes(site, 3, 60)

        audit_round(site, 3)
