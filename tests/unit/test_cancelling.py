"""Ending tasks for certain."""

import asyncio
from contextlib import suppress

import pytest

from nodepool.nats.wire.waiting import cancel, heeding


async def test_a_task_that_loses_a_cancellation_is_ended_all_the_same() -> None:
    # given a task that goes on after it was cancelled once
    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await asyncio.wait((task,), timeout=0)

    # when it is to end
    await cancel(task)

    # then it has
    assert task.cancelled()


async def test_a_task_that_has_ended_keeps_its_result() -> None:
    async def quick() -> int:
        return 1

    task = asyncio.create_task(quick())
    await task
    await cancel(task)
    assert task.result() == 1


async def stubborn(times: int) -> None:
    """Goes on after it was cancelled so many times."""
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()


async def test_all_tasks_end_of_which_each_loses_another_number_of_cancellations() -> None:
    # given tasks, and one that fails when it is to end
    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the log changed")

    tasks = [asyncio.create_task(work) for work in (*map(stubborn, range(3)), failing())]
    await asyncio.wait(tasks, timeout=0)

    # when they are to end
    await cancel(*tasks)

    # then all of them have
    assert [task.cancelled() for task in tasks] == [True, True, True, False]


async def test_what_is_cancelled_while_it_ends_others_ends_them_first() -> None:
    # given a task that is busy with the end of another
    other = asyncio.create_task(stubborn(2))
    await asyncio.wait((other,), timeout=0)
    ending = asyncio.create_task(cancel(other))
    await asyncio.wait((ending,), timeout=0)

    # when it is to end itself
    await cancel(ending)

    # then both have
    assert (other.cancelled(), ending.cancelled()) == (True, True)


@pytest.mark.parametrize("error", [None, OSError("the connection was lost")], ids=str)
@pytest.mark.parametrize("turns", range(4))
async def test_a_wait_does_not_lose_a_cancellation_that_comes_with_its_end(
    turns: int, error: Exception | None
) -> None:
    # given a task that waits for something
    awaited = asyncio.get_running_loop().create_future()
    goes_on = asyncio.Event()

    async def waiting() -> None:
        with suppress(OSError):
            await heeding(asyncio.wait_for(awaited, 10))
        goes_on.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(waiting())
    await asyncio.wait((task,), timeout=0)

    # when that ends, and the task is cancelled so many turns of the loop later
    if error is None:
        awaited.set_result(None)
    else:
        awaited.set_exception(error)
    for _ in range(turns):
        await asyncio.sleep(0)
    is_waiting = not goes_on.is_set()
    task.cancel()
    await asyncio.wait((task,), timeout=30)

    # then it has ended, and while it waited it went no further
    assert task.cancelled()
    assert goes_on.is_set() is not is_waiting


async def test_a_task_that_was_cancelled_can_wait_in_its_end() -> None:
    async def tidy() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await heeding(asyncio.wait_for(asyncio.sleep(0, "tidied"), 10))
        return "not cancelled"

    task = asyncio.create_task(tidy())
    await asyncio.wait((task,), timeout=0)
    task.cancel()
    assert await task == "tidied"
