"""Ending tasks for certain."""

import asyncio
from typing import TypeVar

T = TypeVar("T")
AGAIN_S = 0.1
"""After so long a task that has not ended is cancelled once more."""


async def cancel(task: "asyncio.Task[T]") -> None:
    """Cancels a task, and returns once it has ended; does nothing to one that has.

    `asyncio.wait_for` of Python 3.11, which nats-py uses, loses a cancellation that comes together
    with its result (https://github.com/python/cpython/issues/86296), so one may not be enough.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=AGAIN_S)


def check_cancelled() -> None:
    """Raises CancelledError where this task was cancelled, and what it waited for has lost that."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
