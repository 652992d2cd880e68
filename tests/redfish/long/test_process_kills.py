"""The process of real machines is killed between an intention and its observation."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.harness import PATIENCE_S, ReplicaProcess, freeze, until
from conformance.requests import deleted, registered, stay_of
from nodepool.contract.events import (
    ControllerReported,
    MachineAdded,
    MachineBooted,
    MachineDeclared,
    MachineUndeclared,
    MachineWiped,
    PowerAnswered,
    PowerOverdue,
    PowerRequested,
)
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.front import Front
from redfish.power import RESET
from redfish.site import Site, a_site


def kill(process: ReplicaProcess) -> None:
    """End a process without a warning."""
    process.process.kill()
    process.process.wait(PATIENCE_S)


@asynccontextmanager
async def waiting(
    machines: Emulator, folder: Path, end: str = RESET, *, hurry: bool = True
) -> AsyncIterator[tuple[Site, Front, ReplicaProcess]]:
    """A machine that a NodePool has, and a process that waits for its controller to power it on.

    end: of the path at which it waits; it has sent the reset if that is the path of the reset.
    hurry: whether requests are overdue in seconds, in which a busy machine starts no process.
    """
    async with a_site(machines, folder, 1) as site:
        front = site.rigs["m0"].front
        with site.process(hurry=hurry, metal_poll_seconds="1") as process:
            await site.expect(MachineAdded, "m0")
            front.held = {end or front.machine.id}
            await site.tell(stay_of("m0", 1))
            await site.expect(PowerRequested, "m0", number=1)
            await front.holds()
            yield site, front, process
        assert front.resets == ["On"]
        audit(site)


async def test_an_intention_whose_process_ends_before_it_sends_is_never_sent(
    machines: Emulator, tmp_path: Path
) -> None:
    async with waiting(machines, tmp_path, end="") as (site, front, process):
        kill(process)
        front.let_go()
        with site.process():
            await site.expect(PowerOverdue, "m0", number=1)
            await site.expect(MachineBooted, "m0")

        assert [each.number for each in site.said(PowerAnswered)] == [2]


async def test_a_reset_that_is_carried_out_while_nobody_waits_for_it_is_not_sent_again(
    machines: Emulator, tmp_path: Path
) -> None:
    async with waiting(machines, tmp_path) as (site, front, process):
        kill(process)
        front.let_go()
        with site.process():
            await site.expect(MachineBooted, "m0")

        assert front.carried_out == ["On"]
        assert site.said(PowerAnswered) == []


async def test_a_process_that_is_stopped_says_what_became_of_the_reset_under_way(
    machines: Emulator, tmp_path: Path
) -> None:
    async with waiting(machines, tmp_path, hurry=False) as (site, front, process):
        process.process.terminate()
        front.let_go()
        await site.expect(PowerAnswered, "m0", outcome="done")
        assert process.process.wait(PATIENCE_S) == 0
        with site.process(hurry=False, metal_poll_seconds="1"):
            await site.expect(MachineBooted, "m0")
        assert site.said(PowerOverdue) == []


async def test_a_reset_whose_answer_is_not_stored_is_not_sent_again(
    machines: Emulator, tmp_path: Path
) -> None:
    async with waiting(machines, tmp_path) as (site, front, process):
        await site.read()
        assert site.server.pid is not None
        freeze(site.server)
        front.let_go()
        await until(lambda: front.carried_out == ["On"])
        kill(process)
        os.kill(site.server.pid, signal.SIGCONT)
        with site.process():
            await site.expect(MachineBooted, "m0")


async def test_a_boot_that_was_not_observed_goes_on_after_a_restart(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        rig = site.rigs["m0"]
        with site.process() as process:
            await site.expect(MachineAdded, "m0")
            rig.progress = "MemoryInitializationStarted"
            await site.tell(stay_of("m0", 1))
            await site.expect(ControllerReported, "m0", power="On", runs=False)
            kill(process)
        rig.progress = "OSRunning"
        with site.process():
            await site.expect(MachineBooted, "m0")

        assert rig.front.resets == ["On"]
        audit(site)


@pytest.mark.parametrize("wipe_ends", [False, True])
async def test_no_machine_is_handed_over_unwiped_whenever_the_process_is_killed(
    machines: Emulator, tmp_path: Path, wipe_ends: bool
) -> None:
    async with a_site(machines, tmp_path, 1, wipes=True) as site:
        rig = site.rigs["m0"]
        with site.process() as process:
            await site.until_free(1)
            rig.ends_wipe = None
            stay = stay_of("m0", 1)
            await site.tell(stay)
            await site.expect(MachineBooted, "m0")
            await site.tell(registered(stay), deleted(stay))
            await site.until(lambda: rig.booted[-1:] != [] and "wipe" in rig.booted[-1])
            kill(process)
            if wipe_ends:
                rig.end_wipe()
        with site.process():
            if not wipe_ends:
                await site.expect(ControllerReported, "m0", power="On", settled=5)
                assert site.said(MachineWiped, assignment=1) == []
                rig.end_wipe()
            await site.expect(MachineWiped, "m0", assignment=1)
            await site.tell(stay_of("m0", 2))
            await site.expect(MachineBooted, "m0", assignment=2)

        audit(site)


async def test_of_two_replicas_each_sends_what_it_has_stored_and_one_takes_over(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 8) as site:
        names = list(site.rigs)
        with site.process() as first:
            await site.expect(MachineAdded, count=8)
            with site.process(metal_report_port="-1"):
                for number, machine in enumerate(names[:4], 1):
                    await site.tell(stay_of(machine, number))
                await site.expect(PowerRequested, names[3])
                kill(first)
                for number, machine in enumerate(names[4:], 5):
                    await site.tell(stay_of(machine, number))
                await site.expect(MachineBooted, count=8)

        # A second intention is one after a process that took the first with it.
        for rig in site.rigs.values():
            assert rig.front.carried_out == ["On"], site.story(rig.name)
        audit(site)


async def test_an_inventory_that_is_wrong_is_refused_and_the_last_one_stays(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 3) as site:
        site.rigs["m2"].is_listed = False
        site.declare()
        with site.process() as process:
            await site.expect(MachineAdded, count=2)
            good = site.inventory.read_text()
            site.inventory.write_text(good.replace(SERIAL, SERIAL.replace("serial", "cereal"), 1))
            await site.until(lambda: refusals(process) != [])
            [faults] = refusals(process)
            assert "expected.cereal: is not a known field" in faults[0]
            assert process.metric("nodepool_inventory_refused") == 1
            await site.tell(stay_of("m0", 1))
            await site.expect(MachineBooted, "m0")

            site.rigs["m2"].is_listed, site.rigs["m1"].is_listed = True, False
            site.declare()
            await site.expect(MachineAdded, "m2")
            await site.expect(MachineUndeclared, "m1")
            await site.expect(MachineDeclared, count=3)
            assert process.metric("nodepool_inventory_refused") == 0

        assert len(site.said(MachineDeclared)) == 3
        audit(site)


SERIAL = '"serial": "SN0"'


def refusals(process: ReplicaProcess) -> Sequence[list[str]]:
    """The faults of each inventory that was refused."""
    lines = [each for each in process.lines() if each["event"] == "inventory refused"]
    return [list(map(str, line["faults"])) for line in lines if isinstance(line["faults"], list)]
