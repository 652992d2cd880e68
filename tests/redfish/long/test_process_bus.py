"""The bus goes away, or its disk is full, while the process of real machines is at work."""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path

from bus.harness import ReplicaProcess, connected, until
from bus.test_full_disk import fill, not_stored
from conformance.requests import stay_of
from nodepool.contract.events import MachineAdded, MachineBooted, PowerAnswered, PowerRequested
from nodepool.local.supervisor import keep_storing
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.power import RESET
from redfish.site import Site, a_site


def patient(site: Site) -> AbstractContextManager[ReplicaProcess]:
    """A process of which no request is overdue while the bus is away."""
    return site.process(hurry=False, metal_poll_seconds="1")


async def goes_on(site: Site) -> None:
    """Return once m0 has booted, and m1 does so for a stay that begins now; each by one reset."""
    await site.expect(MachineBooted, "m0")
    await site.tell(stay_of("m1", 2))
    await site.expect(MachineBooted, "m1")
    for rig in site.rigs.values():
        assert rig.front.resets == rig.front.carried_out == ["On"]
        assert [each.number for each in site.said(PowerRequested, rig.name)] == [1]
    audit(site)


async def test_a_bus_that_is_away_during_a_reset_delays_its_answer_and_sends_it_no_second_time(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 2) as site:
        front = site.rigs["m0"].front
        with patient(site):
            # given a reset under way
            await site.expect(MachineAdded, count=2)
            front.held = {RESET}
            await site.tell(stay_of("m0", 1))
            await front.holds()

            # when the bus is killed, and the reset has its effect meanwhile
            await asyncio.to_thread(site.server.kill)
            front.let_go()
            await until(lambda: front.carried_out == ["On"])
            await asyncio.to_thread(site.server.start)

            # then the process says so once the bus is back, and goes on
            await site.expect(PowerAnswered, "m0", outcome="done")
            await goes_on(site)


async def test_a_disk_that_is_full_during_a_reset_delays_what_follows_until_there_is_room(
    machines: Emulator, tmp_path: Path, disk: Path
) -> None:
    async with a_site(machines, tmp_path, 2, data=disk) as site:
        keeping = asyncio.create_task(keep_storing(site.server))
        try:
            front = site.rigs["m0"].front
            with patient(site):
                # given a reset under way
                await site.expect(MachineAdded, count=2)
                front.held = {RESET}
                await site.tell(stay_of("m0", 1))
                await front.holds()

                # when the disk is full, and the reset has its effect meanwhile
                filling = disk / "filling"
                fill(filling)
                async with connected(site.server.url) as connection:
                    await until(lambda: not_stored(connection))
                front.let_go()
                await until(lambda: front.carried_out == ["On"])
                await site.read()
                assert site.said(PowerAnswered) == []
                filling.unlink()

                # then the process goes on once there is room
                await goes_on(site)
        finally:
            keeping.cancel()
