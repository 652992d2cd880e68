"""Ending tasks for certain."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
AGAIN_S = 0.1
"""After so long a task that has not ended is cancelled once more."""


async def cancel(*tasks: "asyncio.Task[object]") -> None:
    """Cancels tasks, and returns once all have ended; does nothing to one that has.

    `asyncio.wait_for` of Python 3.11, which nats-py uses, loses a cancellation that comes together
    with its result (https://github.com/python/cpython/issues/86296), so one may not be enough.

    An error that one of them ends with is dropped, unless somebody asks that task for it. Where
    the task that calls this is cancelled meanwhile, CancelledError is raised, but only then.
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
            task.exception()  # asyncio reports an error that nobody asks for.
    if is_cancelled:
        raise asyncio.CancelledError


async def heeding(work: Awaitable[T]) -> T:
    """The result of what waits by `asyncio.wait_for`, for a task that heeds its cancellations.

    Raises CancelledError where the task was cancelled meanwhile, and the wait has lost that.
    """
    task = asyncio.current_task()
    assert task is not None, "whatever waits does so in a task"
    before = task.cancelling()
    try:
        return await work
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError
