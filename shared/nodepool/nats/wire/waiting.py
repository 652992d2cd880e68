"""Pauses between attempts, and tasks that end reliably when they are cancelled."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

T = TypeVar("T")
RETRY_S = 0.05
RETRY_MAX_S = 0.4
"""The first and the longest pause between two attempts to reach a server, or to read from it.
With longer pauses, a service would resume work noticeably later than its server."""
AGAIN_S = 0.1
"""How long to wait until a task that has not ended is cancelled again."""


async def cancel(*tasks: "asyncio.Task[object]") -> None:
    """Cancel tasks and return when all have ended; leave tasks alone that have ended already.

    `asyncio.wait_for` of Python 3.11, which nats-py uses, loses a cancellation that comes together
    with its result (https://github.com/python/cpython/issues/86296). So a task may need more than
    a single cancellation.

    An error that a task ends with is dropped, unless somebody asks that task for it. If the calling
    task is cancelled meanwhile, CancelledError is raised, but only when all tasks have ended.
    """
    is_cancelled = False
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        try:
            await asyncio.wait(running, timeout=AGAIN_S)
        except asyncio.CancelledError:
            is_cancelled = True
    for task in tasks:
        if not task.cancelled():
            task.exception()  # asyncio logs an exception that is never retrieved.
    if is_cancelled:
        raise asyncio.CancelledError


async def until_first(*work: Coroutine[object, None, object]) -> None:
    """Run coroutines until the first ends; cancel the others, and raise its error if it failed.

    `asyncio.TaskGroup` cancels a task once, and nats-py may lose that, see `cancel`.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel(*tasks)


async def heeding(work: Awaitable[T]) -> T:
    """Return the result of `work`, and lose no cancellation in it.

    Raises CancelledError if the calling task was cancelled meanwhile, even if `work` lost the
    cancellation, as `asyncio.wait_for` of Python 3.11 may.
    """
    task = asyncio.current_task()
    assert task is not None, "whatever waits does so in a task"
    before = task.cancelling()
    try:
        return await work
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError
