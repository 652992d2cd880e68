"""Ending tasks for certain."""

import asyncio
from contextlib import suppress

from nodepool.nats.cancelling import cancel


def test_a_task_that_loses_a_cancellation_is_ended_all_the_same() -> None:
    async def story() -> None:
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

    asyncio.run(story())


def test_a_task_that_has_ended_keeps_its_result() -> None:
    async def story() -> None:
        async def quick() -> int:
            return 1

        task = asyncio.create_task(quick())
        await task
        await cancel(task)
        assert task.result() == 1

    asyncio.run(story())
