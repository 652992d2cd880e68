"""The process of real machines: it powers machines on and off for the services, and says so."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bus.harness import ReplicaProcess, until
from bus.test_process_life import readiness
from conformance.requests import deleted, registered, stay_of
from nodepool.contract.events import (
    ControllerReported,
    MachineAdded,
    MachineBooted,
    MachineWiped,
    PowerAnswered,
    PowerRequested,
)
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.site import NODE_IMAGE, a_site


async def test_a_machine_is_powered_on_for_its_assignment_and_wiped_after_it(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1, wipes=True) as site:
        rig = site.rigs["m0"]
        with site.process():
            await site.until_free(1)
            assert ["wipe" in each for each in rig.booted] == [True]
            stay = stay_of("m0", 1)
            await site.tell(stay)
            await site.expect(MachineBooted, "m0", assignment=1, boot=0)
            assert rig.booted[1:] == [NODE_IMAGE]
            await site.tell(registered(stay), deleted(stay))
            await site.expect(MachineWiped, "m0", assignment=1)
            await site.expect(ControllerReported, "m0", settled=6)

        assert rig.front.resets == ["On", "ForceOff"] * 3
        assert len(site.said(PowerAnswered, outcome="done")) == len(site.said(PowerRequested)) == 6
        audit(site)


def test_a_process_without_an_inventory_ends_with_one_line() -> None:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(
        [sys.executable, "-m", "metal"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )

    line = "metal: NODEPOOL_INVENTORY is not set; it names the inventory file\n"
    assert (done.returncode, done.stderr) == (1, line)


async def test_a_process_is_not_ready_before_it_has_read_an_inventory(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        site.inventory.write_text("kind: Rock")
        with site.process() as process:
            await until(lambda: count_events(process, "inventory refused") == 1)
            await until(
                lambda: "must be one of Rack, BootProfile, WipeProfile" in readiness(process)
            )
            assert process.metric("nodepool_inventory_refused") == 1

            site.declare()
            await site.expect(MachineAdded, "m0")
            await until(lambda: readiness(process) == "ok")
            os.kill(process.pid, signal.SIGHUP)
            await until(lambda: count_events(process, "inventory read") == 2)
            assert process.metric("nodepool_inventories_total") == 3
            assert process.metric("nodepool_inventory_refused") == 0
            assert process.metric("nodepool_controller_reading_seconds_count") > 0


def count_events(process: ReplicaProcess, event: str) -> int:
    """How many lines of this kind a process has logged; none before it has begun."""
    lines = process.lines() if process.log.exists() else []
    return sum(line["event"] == event for line in lines)
