"""A controller answers 503 for longer than a Node may be silent, while its machine runs on."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from conformance.requests import registered, stay_of, updated
from nodepool.contract.events import (
    ControllerSilent,
    MachineAdded,
    MachineBooted,
    MachineConditionChanged,
    NodeConditionChanged,
    PowerRequested,
)
from nodepool.contract.model import NodePhase
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.program import SILENT_AFTER
from redfish.site import Site, a_site


async def make_node(site: Site, machine: str, assignment: int) -> None:
    """Let a machine boot, and join its cluster."""
    stay = stay_of(machine, assignment)
    await site.tell(stay)
    await site.expect(MachineBooted, machine)
    await site.tell(registered(stay))


async def test_a_controller_that_answers_503_for_long_leaves_its_node_as_it_is(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 2) as site:
        broken, well = (rig.front for rig in site.rigs.values())
        with site.process():
            # given two Nodes, and a controller that answers everything with 503
            await site.expect(MachineAdded, count=2)
            await make_node(site, "m0", 1)
            await make_node(site, "m1", 2)
            broken.status = {"": 503}

            # when both are to be rebooted, and that lasts twice as long as a Node may be silent
            silent = await site.expect(ControllerSilent, "m0")
            ((began, _),) = site.dated(ControllerSilent, "m0")
            for number, machine in enumerate(site.rigs, 1):
                stay = stay_of(machine, number)
                await site.tell(updated(stay, NodePhase.REBOOTING, boot=1, forced=True))
            await site.until(lambda: has_lasted(began, 2 * SILENT_AFTER))

            # then that is a condition of its machine, and none of its Node
            assert silent.cause.startswith("ServerError: ")
            assert "503" in silent.cause
            changed = [(each.type, each.status) for each in site.said(MachineConditionChanged)]
            assert changed == [("ControllerSilent", True)]
            assert len(site.said(ControllerSilent)) == 1
            assert site.said(NodeConditionChanged) == []
            # and the other machine is rebooted meanwhile, and this one is not touched
            await site.expect(MachineBooted, "m1", boot=1)
            assert well.resets == ["On", "ForceOff", "On"]
            assert broken.resets == ["On"]
            assert [each.number for each in site.said(PowerRequested, "m0")] == [1]

            # and once its controller answers, it is rebooted too, by one reset for each intention
            broken.status = {}
            await site.expect(MachineConditionChanged, "m0", status=False)
            await site.expect(MachineBooted, "m0", boot=1)

        assert broken.resets == broken.carried_out == ["On", "ForceOff", "On"]
        assert site.said(NodeConditionChanged) == []
        audit(site)


def has_lasted(began: datetime, time: timedelta) -> bool:
    """Whether something that began at a moment has lasted for some time."""
    return datetime.now(UTC) - began >= time
