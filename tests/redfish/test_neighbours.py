"""A controller that is slow, silent or broken keeps no other one waiting, and is left alone."""

import asyncio
from contextlib import AsyncExitStack

from metal.host.redfish.controller import Controller
from metal.host.redfish.controllers import Controllers
from metal.host.redfish.limits import Limits
from metal.inventory.inventory import Place
from metal.reading import BootTarget, Part, Reading, ResetType
from metal.replies import Done, Failure, Trouble
from redfish.emulator import Emulator
from redfish.front import ENVIRONMENT, Front, fronted

NO_PARTS: frozenset[Part] = frozenset()
ANYWHERE = "0.0.0.0"
"""All addresses of this machine; each in 127.0.0.0/8 is one."""
FEW = Limits(
    at_once=7,
    suspects=3,
    power=1,
    suspects_power=1,
    request_s=60,
    pause_least_s=0,
    pause_most_s=0,
)
"""Turns for seven calls: three readings, two of suspects, and a power request for both kinds."""
SLOW, HOSTS = 300, 250
"""How many controllers are slow, and how many of them have addresses in one network."""
RACK = 6
"""How many machines a rack has: more than there are turns for readings."""
READINGS, OF_SUSPECTS = FEW.at_once - FEW.suspects - FEW.power, FEW.suspects - FEW.suspects_power
"""How many of the turns are for readings, and for those of suspects."""


async def test_a_silent_controller_keeps_no_other_one_waiting(machines: Emulator) -> None:
    limits = Limits(at_once=5, suspects=2, power=1, suspects_power=1, request_s=60)
    async with (
        fronted(machines.machine()) as silent,
        fronted(machines.machine()) as well,
        Controllers(limits, ENVIRONMENT) as controllers,
    ):
        silent.held = {silent.machine.id}
        slow = asyncio.create_task(controllers.open(silent.place()).read())
        await silent.holds()
        controller = controllers.open(well.place())

        for _ in range(5):
            assert isinstance(await controller.read(), Reading)
        assert await controller.reset(ResetType.ON) == Done()

        assert not slow.done()
        silent.let_go()
        assert isinstance(await slow, Reading)


async def test_a_whole_rack_that_is_silent_keeps_no_other_machine_waiting(
    machines: Emulator,
) -> None:
    async with AsyncExitStack() as stack:
        controllers = await stack.enter_async_context(Controllers(FEW, ENVIRONMENT))
        rack = [await stack.enter_async_context(fronted(machines.machine())) for _ in range(RACK)]
        opened = [controllers.open(front.place()) for front in rack]
        await _fail_once(rack, opened)
        well = await stack.enter_async_context(fronted(machines.machine()))
        for front in rack:
            front.held = {front.machine.id}
        silent = [asyncio.create_task(controller.read()) for controller in opened]
        first = [asyncio.create_task(front.holds()) for front in rack]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)

        assert isinstance(await controllers.open(well.place()).read(), Reading)

        assert not any(task.done() for task in silent)
        assert sum(front.holding > 0 for front in rack) <= OF_SUSPECTS
        for front in rack:
            front.let_go()
        assert all(isinstance(found, Reading) for found in await asyncio.gather(*silent))
        for task in first:
            task.cancel()


async def _fail_once(rack: list[Front], opened: list[Controller]) -> None:
    for front, controller in zip(rack, opened, strict=True):
        front.status[front.machine.id] = 503
        assert isinstance(await controller.read(NO_PARTS), Failure)
        front.status.clear()


async def test_all_calls_together_are_bounded(machines: Emulator) -> None:
    async with AsyncExitStack() as stack:
        controllers = await stack.enter_async_context(Controllers(FEW, ENVIRONMENT))
        fronts = [await stack.enter_async_context(fronted(machines.machine())) for _ in range(RACK)]
        for front in fronts:
            front.held = {"/Sessions"}
        opened = [controllers.open(front.place()) for front in fronts]
        reading = [asyncio.create_task(each.read(NO_PARTS)) for each in opened]
        await asyncio.gather(*(front.holds() for front in fronts[:READINGS]))

        received = [len(front.received) for front in fronts]
        assert received == [1] * READINGS + [0] * (RACK - READINGS)

        for front in fronts:
            front.let_go()
        assert all(isinstance(found, Reading) for found in await asyncio.gather(*reading))


async def test_hundreds_of_slow_controllers_delay_no_power_request_of_a_machine_that_is_well(
    machines: Emulator,
) -> None:
    # given controllers that are slow, each at an address of its own, and all turns for readings
    async with (
        fronted(machines.machine(), host=ANYWHERE, held={""}) as slow,
        fronted(machines.machine()) as well,
        Controllers(Limits(request_s=60), ENVIRONMENT) as controllers,
    ):
        opened = [controllers.open(each) for each in many_places(slow)]
        reading = [asyncio.create_task(each.read()) for each in opened]
        limits = Limits()
        await slow.holds(limits.at_once - limits.suspects - limits.power)

        # when a machine that is well has to be powered on
        controller = controllers.open(well.place())
        found = await controller.read(NO_PARTS, is_power=True)
        assert await controller.set_boot(BootTarget.PXE) is None
        done = await controller.reset(ResetType.ON)

        # then it is, before any of the slow controllers has answered
        assert isinstance(found, Reading)
        assert done == Done()
        assert not any(each.done() for each in reading)
        assert slow.holding == limits.at_once - limits.suspects - limits.power
        for each in reading:
            each.cancel()


async def test_power_requests_to_slow_controllers_delay_no_reading_and_no_other_power_request(
    machines: Emulator,
) -> None:
    # given controllers whose last reading has taken a sixth of its time
    now = 0.0
    async with (
        fronted(machines.machine(), host=ANYWHERE) as slow,
        fronted(machines.machine()) as well,
        Controllers(FEW, ENVIRONMENT, clock=lambda: now) as controllers,
    ):
        opened = [controllers.open(each) for each in many_places(slow)[:RACK]]
        for each in opened:
            slow.held, slow.released = {slow.machine.id}, asyncio.Event()
            reading = asyncio.create_task(each.read(NO_PARTS))
            await slow.holds(slow.holding + 1)
            now += FEW.call_s * FEW.slow
            slow.let_go()
            assert isinstance(await reading, Reading)

        # when all of them are to be reset
        slow.held, slow.released, before = {slow.machine.id}, asyncio.Event(), slow.holding
        resets = [asyncio.create_task(each.reset(ResetType.ON)) for each in opened]
        await slow.holds(before + FEW.suspects)

        # then they share the turns of suspects, and a machine that is well is read and reset
        controller = controllers.open(well.place())
        assert isinstance(await controller.read(), Reading)
        assert await controller.reset(ResetType.ON) == Done()
        assert not any(each.done() for each in resets)
        assert slow.holding == before + FEW.suspects

        # and those that have been quick once are no suspects any more
        slow.let_go()
        assert await asyncio.gather(*resets) == [Done()] * RACK
        slow.held, slow.released, before = {slow.machine.id}, asyncio.Event(), slow.holding
        readings = [asyncio.create_task(each.read(NO_PARTS)) for each in opened]
        await slow.holds(before + READINGS)
        slow.let_go()
        await asyncio.gather(*readings)


def many_places(front: Front) -> list[Place]:
    """The places of hundreds of controllers, each with an address of its own."""
    hosts = [f"127.0.{1 + number // HOSTS}.{1 + number % HOSTS}" for number in range(SLOW)]
    return [front.place(address=f"http://{host}:{front.port}") for host in hosts]


async def test_the_systems_behind_one_controller_have_two_calls_at_a_time_together(
    machines: Emulator, controllers: Controllers
) -> None:
    # given two systems behind one controller, and a third machine
    async with (
        fronted(machines.machine()) as front,
        fronted(machines.machine()) as third,
    ):
        other = front.place(system=machines.machine().id)
        opened = [controllers.open(front.place()), controllers.open(other)]
        for each in opened:
            assert isinstance(await each.read(NO_PARTS), Reading)

        # when each system is read twice
        front.held = {front.machine.id, other.system}
        front.received.clear()
        readings = [asyncio.create_task(each.read(NO_PARTS)) for each in opened * 2]
        await front.holds(2)
        assert isinstance(await controllers.open(third.place()).read(NO_PARTS), Reading)

        # then their controller gets two requests at a time
        assert len(front.received) == 2
        front.let_go()
        assert all(isinstance(found, Reading) for found in await asyncio.gather(*readings))
        assert len(front.received) == 4


async def test_a_controller_has_two_calls_at_a_time(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())
        await controller.read(NO_PARTS)
        front.held = {front.machine.id}
        front.received.clear()
        reading = [asyncio.create_task(controller.read(NO_PARTS)) for _ in range(5)]
        await front.holds(2)

        assert front.received == [f"GET {front.path}"] * 2

        front.let_go()
        assert all(isinstance(found, Reading) for found in await asyncio.gather(*reading))


async def test_a_controller_that_fails_is_left_alone_longer_each_time(machines: Emulator) -> None:
    now = 0.0
    limits = Limits(pause_least_s=5, pause_most_s=300)
    async with (
        fronted(machines.machine()) as front,
        Controllers(limits, ENVIRONMENT, clock=lambda: now, draw=lambda: 0.0) as controllers,
    ):
        controller = controllers.open(front.place())
        front.status["/Sessions"] = 503
        for pause in (5, 10, 20, 40, 80, 160, 300, 300):
            assert await _is_asked(front, controller)
            now += pause - 1
            assert not await _is_asked(front, controller)
            now += 1

        front.status.clear()
        assert isinstance(await controller.read(NO_PARTS), Reading)
        front.status[front.machine.id] = 503
        assert await _is_asked(front, controller)
        now += 5
        assert await _is_asked(front, controller)


async def _is_asked(front: Front, controller: Controller) -> bool:
    return await _is_asked_for(front, controller, Trouble.SERVER_ERROR)


async def _is_asked_for(front: Front, controller: Controller, trouble: Trouble) -> bool:
    """Whether a call to a controller that fails in this way sends it a request."""
    front.received.clear()
    failure = await controller.read(NO_PARTS)
    assert isinstance(failure, Failure)
    assert failure.trouble is trouble
    assert failure.is_repeated is (not front.received)
    return bool(front.received)


async def test_pauses_differ_so_that_a_rack_is_not_asked_all_at_once(machines: Emulator) -> None:
    now, draws = 0.0, iter((0.0, 1.0))
    limits = Limits(pause_least_s=10, pause_most_s=10)
    async with (
        fronted(machines.machine()) as one,
        fronted(machines.machine()) as other,
        Controllers(limits, ENVIRONMENT, lambda: now, lambda: next(draws)) as controllers,
    ):
        opened = [(front, controllers.open(front.place())) for front in (one, other)]
        for front, controller in opened:
            front.status["/Sessions"] = 503
            assert await _is_asked(front, controller)

        now = 4.9
        assert [await _is_asked(*each) for each in opened] == [False, False]
        now = 5.0
        one.status.clear()
        other.status.clear()
        assert isinstance(await opened[0][1].read(NO_PARTS), Failure)
        assert isinstance(await opened[1][1].read(NO_PARTS), Reading)


async def test_a_call_that_has_waited_is_not_made_in_the_pause_that_began_meanwhile(
    machines: Emulator,
) -> None:
    limits = Limits(per_controller=1)
    async with fronted(machines.machine()) as front, Controllers(limits, ENVIRONMENT) as opened:
        controller = opened.open(front.place())
        front.status["/Sessions"] = 503

        first, second = await asyncio.gather(controller.read(), controller.read())

        assert isinstance(first, Failure)
        assert isinstance(second, Failure)
        assert (first.is_repeated, second.is_repeated) == (False, True)
        assert len(front.received) == 1


async def test_a_controller_that_is_asked_too_much_is_left_alone(machines: Emulator) -> None:
    async with fronted(machines.machine()) as front, Controllers(Limits(), ENVIRONMENT) as opened:
        controller = opened.open(front.place())
        front.status[front.machine.id] = 429

        assert await _is_asked_for(front, controller, Trouble.SERVER_ERROR)
        assert not await _is_asked_for(front, controller, Trouble.SERVER_ERROR)


async def test_a_controller_that_begins_no_session_is_left_alone(machines: Emulator) -> None:
    async with fronted(machines.machine()) as front, Controllers(Limits(), ENVIRONMENT) as opened:
        controller = opened.open(front.place())
        front.status["/Sessions"] = 400  # It has as many as it can have.

        assert await _is_asked_for(front, controller, Trouble.UNAUTHORIZED)
        assert not await _is_asked_for(front, controller, Trouble.UNAUTHORIZED)


async def test_a_request_that_is_refused_begins_no_pause(machines: Emulator) -> None:
    async with fronted(machines.machine()) as front, Controllers(Limits(), ENVIRONMENT) as opened:
        controller = opened.open(front.place())
        front.status["/ComputerSystem.Reset"] = 400
        await controller.reset(ResetType.ON)

        assert isinstance(await controller.read(NO_PARTS), Reading)
