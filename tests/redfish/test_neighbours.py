"""A controller that is slow, silent or broken keeps no other one waiting, and is left alone."""

import asyncio
from contextlib import AsyncExitStack

from metal.host.redfish.controller import Controller
from metal.host.redfish.controllers import Controllers
from metal.host.redfish.limits import Limits
from metal.reading import Part, Reading, ResetType
from metal.replies import Done, Failure, Trouble
from redfish.emulator import Emulator
from redfish.front import ENVIRONMENT, Front, fronted

NO_PARTS: frozenset[Part] = frozenset()
FEW = Limits(at_once=4, suspects=2, request_s=60, pause_least_s=0, pause_most_s=0)
"""Turns for four calls at a time."""


async def test_a_silent_controller_keeps_no_other_one_waiting(machines: Emulator) -> None:
    limits = Limits(at_once=3, suspects=1, request_s=60)
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
        rack = [await stack.enter_async_context(fronted(machines.machine())) for _ in range(6)]
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
        assert sum(front.holding > 0 for front in rack) <= FEW.suspects
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
        fronts = [await stack.enter_async_context(fronted(machines.machine())) for _ in range(6)]
        for front in fronts:
            front.held = {"/Sessions"}
        opened = [controllers.open(front.place()) for front in fronts]
        reading = [asyncio.create_task(each.read(NO_PARTS)) for each in opened]
        await asyncio.gather(*(front.holds() for front in fronts[:2]))

        assert [len(front.received) for front in fronts] == [1, 1, 0, 0, 0, 0]

        for front in fronts:
            front.let_go()
        assert all(isinstance(found, Reading) for found in await asyncio.gather(*reading))


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
