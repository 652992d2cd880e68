"""Doing something for many objects concurrently, with the results in the objects' order."""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

AT_A_TIME = 32
"""How many objects are processed at the same time."""

K = TypeVar("K")
R = TypeVar("R")


async def in_order(
    items: Iterable[K], work: Callable[[K], Awaitable[R]]
) -> "AsyncGenerator[tuple[K, asyncio.Future[R]], None]":
    """Yield each item with its finished work, whose `result()` returns or raises.

    Close it as soon as the rest is not wanted, which cancels the work that is under way.
    """
    import asyncio  # `--help` does not need it.

    under_way: deque[tuple[K, asyncio.Future[R]]] = deque()
    try:
        for item in items:
            under_way.append((item, asyncio.ensure_future(work(item))))
            if len(under_way) >= AT_A_TIME:
                yield await _wait_for_first(under_way)
        while under_way:
            yield await _wait_for_first(under_way)
    finally:
        for _, future in under_way:
            future.cancel()
        await asyncio.gather(*(future for _, future in under_way), return_exceptions=True)


async def _wait_for_first(
    under_way: "deque[tuple[K, asyncio.Future[R]]]",
) -> "tuple[K, asyncio.Future[R]]":
    import asyncio

    await asyncio.wait((under_way[0][1],))
    return under_way.popleft()
