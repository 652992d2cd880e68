"""The process of real machines: it powers machines on and off for the services, and says so."""

from pathlib import Path

from conformance.requests import deleted, registered
from nodepool.contract.events import (
    ControllerReported,
    MachineAdded,
    MachineBooted,
    MachineWiped,
    PowerAnswered,
    PowerRequested,
)
from redfish.audit import audit, stay_of
from redfish.emulator import Emulator
from redfish.site import NODE_IMAGE, a_site


async def test_a_machine_is_powered_on_for_its_assignment_and_wiped_after_it(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1, wipes=True) as site:
        rig = site.rigs["m0"]
        with site.process():
            await site.expect(MachineAdded, "m0", wipes=True)
            stay = stay_of("m0", 1)
            await site.tell(stay)
            await site.expect(MachineBooted, "m0", assignment=1, boot=0)
            assert rig.booted == [NODE_IMAGE]
            await site.tell(registered(stay), deleted(stay))
            await site.expect(MachineWiped, "m0", assignment=1)
            await site.until(lambda: rig.front.carried_out[-1:] == ["ForceOff"])
            await site.expect(ControllerReported, "m0", settled=4)

        assert rig.front.resets == ["On", "ForceOff", "On", "ForceOff"]
        assert len(site.said(PowerAnswered, outcome="done")) == len(site.said(PowerRequested)) == 4
        audit(site)
