"""Does some work ahead of whoever uses its results, in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")
AHEAD: Final = 3
"""How many pieces of work are done at the same time; each may hold a whole segment in memory."""


async def ahead(work: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
    """Yield the result of each piece of work, in order; raise the first error."""
    waiting, begun = iter(work), deque[asyncio.Task[T]]()
    try:
        while True:
            while len(begun) < AHEAD and (each := next(waiting, None)) is not None:
                begun.append(asyncio.create_task(each))
            if not begun:
                return
            yield await begun.popleft()
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
