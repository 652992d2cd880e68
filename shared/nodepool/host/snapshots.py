"""When to save a snapshot of a replica, and saving it in the background."""

import asyncio
from collections.abc import Coroutine

from nodepool.host.logs import Logger

SNAPSHOT_AFTER = 20_000
"""The most inputs that a restart processes again, and a few seconds' worth more."""


class Snapshots:
    """Saves a snapshot after every `every` processed inputs, one at a time."""

    def __init__(self, every: int, log: Logger) -> None:
        self._every = every
        self._log = log
        self._processed = 0
        self._saving: asyncio.Task[int] | None = None

    def count(self, processed: int) -> None:
        """So many more inputs were processed."""
        self._processed += processed

    def is_due(self) -> bool:
        """Whether to start a snapshot now; logs one that has failed, which is tried again later."""
        if self._saving is not None and self._saving.done():
            saving, self._saving = self._saving, None
            if not saving.cancelled() and (error := saving.exception()) is not None:
                self._log.warning("snapshot failed", cause=str(error))
        return self._processed >= self._every and self._saving is None

    def start(self, save: Coroutine[None, None, int]) -> None:
        """Saves in the background."""
        self._processed = 0
        self._saving = asyncio.create_task(save)

    async def finish(self) -> None:
        """Waits for a snapshot that is being saved; raises what it raises."""
        if self._saving is not None:
            await self._saving
