"""Work that goes on until a part of it fails."""

import asyncio

import pytest

from agent.host.work import Work, pool_key
from nodepool.nats.wire.waiting import until_first

BOUND_S = 5.0


@pytest.mark.parametrize("turns", range(4))
async def test_work_ends_with_its_first_failure_although_a_part_loses_its_cancellation(
    turns: int,
) -> None:
    # given a part that awaits a reply, as nats-py does, and goes on with it
    loop = asyncio.get_running_loop()
    reply = loop.create_future()

    async def follower() -> None:
        await asyncio.wait_for(reply, BOUND_S)
        await asyncio.Event().wait()

    # when another part fails, and the reply comes so many turns of the loop later
    def later(left: int) -> None:
        if left:
            loop.call_soon(later, left - 1)
        elif not reply.done():
            reply.set_result(None)

    async def failing() -> None:
        await asyncio.sleep(0.01)
        loop.call_soon(later, turns)
        raise OSError("the log changed")

    work = asyncio.create_task(until_first(follower(), failing()))
    await asyncio.wait((work,), timeout=BOUND_S)

    # then all of it has ended, with that failure
    assert work.done()
    assert str(work.exception()) == "the log changed"


async def test_what_is_worked_on_is_ended_although_it_loses_its_cancellation() -> None:
    # given a key that is worked on, which awaits a reply
    begun, reply = asyncio.Event(), asyncio.get_running_loop().create_future()
    work = Work(lambda: True)
    work.wake(pool_key("train"))

    async def comparing(_key: object) -> None:
        begun.set()
        await asyncio.wait_for(reply, BOUND_S)
        await asyncio.Event().wait()

    running = asyncio.create_task(work.run(comparing))
    await begun.wait()
    await asyncio.sleep(0)

    # when it is to end, and the reply comes at that moment
    reply.set_result(None)
    ending = asyncio.create_task(work.cancel())
    await asyncio.wait((ending,), timeout=BOUND_S)

    # then it has
    assert ending.done()
    assert not work.queue.working
    running.cancel()
