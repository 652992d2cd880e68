"""Two machines that show one serial number stay out of production, whoever leads."""

from pathlib import Path

from nodepool.contract.events import ControllerReported, MachineAdded, MachineConditionChanged
from redfish.emulator import Emulator
from redfish.site import a_site


async def test_a_new_process_keeps_a_machine_out_while_its_twin_is_slow(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 2) as site:
        one, other = site.rigs["m0"], site.rigs["m1"]
        # given two machines of which a process has found that they show one serial number
        other.serial = one.serial
        one.front.held = {one.front.machine.id}
        with site.process():
            await site.expect(ControllerReported, "m1")
            one.front.let_go()
            await site.expect(MachineConditionChanged, "m0", type="OtherMachine", status=True)

        # when a new process reads the one, and the controller of the other does not answer
        other.front.held = {other.front.machine.id}
        one.front.received.clear()
        with site.process():
            await other.front.holds()
            await site.until(lambda: one.front.received.count(f"GET {one.front.path}") >= 3)
            assert site.said(MachineAdded) == []

            # then the one is free once the other shows another serial number
            other.serial = "SN1"
            other.front.let_go()
            await site.expect(MachineAdded, "m0")
            await site.expect(MachineAdded, "m1")
        assert [each.stranger for each in site.said(ControllerReported, "m0")][-1] == ""
