"""The process of real machines while controllers fail: one reset at most for each intention."""

from pathlib import Path

import pytest

from bus.harness import ReplicaProcess
from conformance.requests import deleted, registered, stay_of
from nodepool.contract.commands_metal import MaintainMachine, VerifyMachine
from nodepool.contract.events import (
    ControllerReported,
    ControllerSilent,
    MachineAdded,
    MachineBooted,
    MachineCheckRequested,
    MachineConditionChanged,
    MachineFailed,
    MachineMaintenanceChanged,
    MachineUndeclared,
    PowerAnswered,
    PowerOverdue,
    PowerRequested,
)
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.front import PASSWORD, USER
from redfish.power import switch_off
from redfish.site import NODE_IMAGE, Site, a_site
from support.constants import ZONE


async def added(site: Site, *machines: str) -> None:
    """Return once machines are in production."""
    for machine in machines:
        await site.expect(MachineAdded, machine)


async def test_controllers_that_fail_are_conditions_of_their_machines_and_delay_no_other(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 6) as site:
        fronts = {name: rig.front for name, rig in site.rigs.items()}
        with site.process():
            await added(site, *site.rigs)
            fronts["m0"].held = {fronts["m0"].machine.id}
            fronts["m1"].status = {fronts["m1"].machine.id: 503}
            fronts["m2"].password = "another"
            fronts["m3"].breaks_before = {"GET", "POST", "PATCH"}
            fronts["m4"].delay_s = 0.8
            for machine in ("m0", "m1", "m2", "m3"):
                await site.expect(
                    MachineConditionChanged, machine, type="ControllerSilent", status=True
                )
            causes = {each.machine: each.cause for each in site.said(ControllerSilent)}
            assert causes["m0"].startswith("TimedOut: ")
            assert causes["m1"].startswith("ServerError: ")
            assert causes["m2"].startswith("Unauthorized: ")
            assert causes["m3"].startswith("Unreachable: ")

            for number, machine in enumerate(site.rigs, 1):
                await site.tell(stay_of(machine, number))
            await site.expect(MachineBooted, "m5")
            await site.expect(MachineBooted, "m4")
            assert site.said(MachineBooted, "m0") == []

            fronts["m0"].let_go()
            fronts["m1"].status = {}
            fronts["m3"].breaks_before = set()
            site.credentials.write_text(f"{USER}:another")
            for machine in ("m0", "m1", "m2", "m3"):
                await site.expect(
                    MachineConditionChanged, machine, type="ControllerSilent", status=False
                )

        audit(site)


async def test_a_reset_whose_connection_breaks_is_one_reset_whether_it_happened_or_not(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 2) as site:
        happens, does_not = site.rigs["m0"].front, site.rigs["m1"].front
        with site.process():
            await added(site, "m0", "m1")
            happens.breaks_after, does_not.breaks_before = {"POST"}, {"POST"}
            await site.tell(stay_of("m0", 1), stay_of("m1", 2))
            await site.expect(PowerAnswered, "m0", outcome="unknown")
            await site.expect(PowerAnswered, "m1", outcome="unknown")
            does_not.breaks_before = set()
            await site.expect(MachineBooted, "m0")
            assert (happens.resets, happens.carried_out) == (["On"], ["On"])
            await site.expect(PowerOverdue, "m1", number=1)
            await site.expect(MachineBooted, "m1")

        assert (does_not.resets, does_not.carried_out) == (["On", "On"], ["On"])
        assert [each.number for each in site.said(PowerRequested, "m1")] == [1, 2]
        audit(site)


async def test_a_request_that_could_come_after_its_end_is_refused_and_not_sent(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        front = site.rigs["m0"].front
        with site.process():
            await added(site, "m0")
            front.delay_s = 2.0
            await site.tell(stay_of("m0", 1))
            late = await site.expect(PowerAnswered, "m0", outcome="refused")
            assert late.cause == "it could not be sent in time"
            assert front.resets == []
            front.delay_s = 0.0
            await site.expect(MachineBooted, "m0")

        assert front.resets == ["On"]
        audit(site)


def inventories_read(process: ReplicaProcess) -> int:
    """How many inventories a process has taken over."""
    return sum(each["event"] == "inventory read" for each in process.lines())


@pytest.mark.parametrize("end", ["maintenance", "deletion", "inventory"])
async def test_a_machine_that_nobody_wants_on_any_more_is_not_powered_on(
    machines: Emulator, tmp_path: Path, end: str
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        front = site.rigs["m0"].front
        with site.process() as process:
            # given a request that waits for its controller
            await added(site, "m0")
            front.held = {front.machine.id}
            await site.tell(stay_of("m0", 1))
            await site.expect(PowerRequested, "m0", number=1)
            await front.holds()

            # when the machine must not be on any more, before the request is sent
            if end == "maintenance":
                await site.tell(MaintainMachine(zone=ZONE, machine="m0"))
                await site.expect(MachineMaintenanceChanged, "m0")
            elif end == "deletion":
                await site.tell(deleted(stay_of("m0", 1)), VerifyMachine(zone=ZONE, machine="m0"))
                await site.expect(MachineCheckRequested, "m0")
            else:
                site.rigs["m0"].is_listed = False
                site.declare()
                await site.until(lambda: inventories_read(process) == 2)
            front.let_go()

            # then it is refused
            refused = await site.expect(PowerAnswered, "m0", number=1)
            assert refused.outcome == "refused"
        assert front.resets == []
        audit(site)


async def test_a_controller_that_forgets_the_boot_override_powers_no_machine_on(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        front = site.rigs["m0"].front
        front.forgets_boot = True
        with site.process():
            await added(site, "m0")
            await site.tell(stay_of("m0", 1))
            failed = await site.expect(MachineFailed, "m0")

        assert "forgets the boot override" in failed.cause
        assert front.resets == []
        audit(site)


async def test_a_power_state_that_is_wrong_is_tried_three_times_and_then_told(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        rig = site.rigs["m0"]
        rig.power = "Off"
        with site.process():
            await added(site, "m0")
            await site.tell(stay_of("m0", 1))
            failed = await site.expect(MachineFailed, "m0")

        assert "without effect" in failed.cause
        assert rig.front.resets == ["On"] * 3
        audit(site)


async def test_machines_with_the_same_or_another_serial_number_are_not_touched(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 3) as site:
        with site.process():
            await added(site, "m0", "m1", "m2")
            site.rigs["m1"].serial = site.rigs["m0"].serial
            await site.expect(MachineConditionChanged, "m0", type="OtherMachine", status=True)
            other = await site.expect(MachineConditionChanged, "m1", type="OtherMachine")
            assert other.message == "the serial number is SN0, and SN1 is expected"
            await site.tell(stay_of("m0", 1), stay_of("m1", 2), stay_of("m2", 3))
            await site.expect(MachineBooted, "m2")
            assert site.rigs["m0"].front.resets == site.rigs["m1"].front.resets == []

            site.rigs["m1"].serial = "SN1"
            await site.expect(MachineConditionChanged, "m0", type="OtherMachine", status=False)

        audit(site)


async def test_a_controller_that_shows_its_password_as_a_part_is_not_quoted(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        site.rigs["m0"].serial = PASSWORD
        with site.process():
            wrong = await site.expect(ControllerReported, "m0")
            assert wrong.stranger == "the serial number is ***, and SN0 is expected"
        site.check_secrets()


async def test_a_machine_that_gets_another_name_is_no_twin_of_itself(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 2) as site:
        old, new = site.rigs["m0"], site.rigs["m1"]
        new.is_listed = False
        site.declare()
        with site.process():
            await added(site, "m0")
            old.is_listed, new.is_listed = False, True
            new.serial = new.expected = old.serial
            site.declare()
            await site.expect(MachineUndeclared, "m0")
            await added(site, "m1")

        audit(site)


async def test_a_rack_that_loses_its_power_is_powered_on_again_once(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 3) as site:
        fronts = [rig.front for rig in site.rigs.values()]
        with site.process():
            await added(site, *site.rigs)
            for number, machine in enumerate(site.rigs, 1):
                stay = stay_of(machine, number)
                await site.tell(stay)
                await site.expect(MachineBooted, machine)
                await site.tell(registered(stay))
            for front in fronts:
                front.breaks_before = {"GET", "POST", "PATCH"}
                await switch_off(front)
            for machine in site.rigs:
                await site.expect(ControllerSilent, machine)
            for front in fronts:
                front.breaks_before = set()
            await site.until(lambda: all(each.resets == ["On", "On"] for each in fronts))
            for machine in site.rigs:
                await site.expect(ControllerReported, machine, settled=2, runs=True)

        assert all(rig.booted == [NODE_IMAGE] * 2 for rig in site.rigs.values())
        audit(site)


async def test_the_firmware_of_a_controller_is_compared_and_asked_for_if_the_inventory_has_it(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 2) as site:
        # given a machine of which the inventory expects a firmware, and one of which it does not
        compared, other = site.rigs.values()
        compared.firmware = "2.0"
        site.declare()
        with site.process():
            # then the first one is kept out with both versions, and only its controller is asked
            await added(site, other.name)
            unfit = await site.expect(MachineConditionChanged, compared.name, type="Unfit")
            text = "the firmware of the controller has version 1.00, and 2.0 is expected"
            assert unfit.message == text
            assert any("/Managers/" in each for each in compared.front.received)
            assert not any("/Managers/" in each for each in other.front.received)

            # when the inventory has the version that is there, then it is added
            compared.firmware = "1.00"
            site.declare()
            await added(site, compared.name)

        audit(site)
