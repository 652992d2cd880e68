"""Tries again what the store does not do, until it does."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from nodepool.archive.storage.errors import StoreError
from nodepool.state.back_off import pause_s

T = TypeVar("T")
BACK_OFF_S: Final = 0.5
BACK_OFF_MAX_S: Final = 30.0


class Patience:
    """Waits for the store.

    note: called with the cause of each attempt that fails.
    fault: why the last attempt has failed, as one line; empty if it has not.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.fault = ""

    async def insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, which is done again while it raises StoreError."""
        failures = 0
        while True:
            try:
                result = await work()
            except StoreError as error:
                self.fault = str(error)
                self._note(self.fault)
            else:
                self.fault = ""
                return result
            failures += 1
            pause = pause_s(failures, BACK_OFF_S, BACK_OFF_MAX_S, random.random())
            await asyncio.sleep(pause)
