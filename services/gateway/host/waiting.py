"""Lets a bounded number of tasks work at a time, of one organisation after the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.turns import Turns


class FairPlaces:
    """Places to work, for which organisations wait in turn.

    places: how many tasks may work at the same time.
    waiting: how many tasks of an organisation may wait.

    Whoever asks for more than others delays itself: another one waits for the next place at most.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self._free = places
        self._waiting: Turns[asyncio.Future[None]] = Turns(waiting)

    @asynccontextmanager
    async def place(self, org: str) -> AsyncIterator[bool]:
        """Wait for a place and keep it within the context; give False if too many wait already."""
        has_place = await self._take(org)
        try:
            yield has_place
        finally:
            if has_place:
                self._give_back()

    async def _take(self, org: str) -> bool:
        if self._free:
            self._free -= 1
            return True
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._waiting.put(org, called):
            return False
        try:
            await called
        except asyncio.CancelledError:
            if not called.cancelled():  # The place came at the same moment.
                self._give_back()
            raise
        return True

    def _give_back(self) -> None:
        while (called := self._waiting.next()) is not None:
            if not called.done():
                called.set_result(None)
                return
        self._free += 1
