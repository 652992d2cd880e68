"""When to save a snapshot of a replica, and saving it in the background."""

import asyncio
from collections.abc import Callable, Coroutine

from nodepool.host.logs import Logger

SNAPSHOT_AFTER = 50_000
"""How many positions of the log a restart reads again at most, plus those of a few seconds."""
STOPPING = 5
"""A stopping service saves another snapshot after a fifth as many positions."""
STOP_S = 5.0
"""How long a snapshot may delay the exit of a service."""
RETRY_S = 10.0
"""The pause after a snapshot that failed."""
PAUSES = 4
"""The pause after a snapshot, as a multiple of the time that saving it took. So saving does not
slow down a replica that reads a long log."""
LOOK_S = 5.0
"""How often to check that the snapshot still exists."""

Job = Callable[[], Coroutine[None, None, int]]
"""Saves or looks for a snapshot; returns the position of the stored snapshot, 0 if none."""


class Snapshots:
    """Saves a snapshot when the stored snapshot is `every` positions behind the committed position.

    It saves another snapshot at once if the head of the log is cut off beyond the stored snapshot.
    Positions are counted from the stored snapshot, not from the start of the process, so even a
    service that restarts again and again gets a snapshot. One job runs at a time.

    ignored: whether the stored snapshot is unusable, for example because its state is wrong. It
        counts as missing until this process has saved another snapshot.
    """

    def __init__(self, every: int, log: Logger, *, ignored: bool = False) -> None:
        self.ignored = ignored
        self.every = every
        self._log = log
        self._stored = 0
        self._job: asyncio.Task[int] | None = None
        self._is_saving = False
        self._not_before = 0.0
        self._began_at = 0.0
        self._look_at = 0.0

    def note_stored_position(self, position: int, *, is_usable: bool = True) -> None:
        """Note the position up to which the stored snapshot goes; 0 if no snapshot is usable.

        is_usable: False if a snapshot is stored that cannot be used; it is then `ignored`.
        """
        self._stored = position
        self.ignored = self.ignored or not is_usable

    def work(
        self, committed: int, now: float, *, save: Job | None, look: Job, first: int = 1
    ) -> None:
        """Start the job that is due, in the background; `save` is None for a follower.

        committed: the position up to which the replica's state goes.
        first: the position at which the log begins.
        now: seconds of a monotonic clock.
        """
        if self._job is not None and not self._is_done(now):
            return
        is_cut = first > self._stored + 1 and committed > self._stored
        is_due = is_cut or committed - self._stored >= self.every
        if save is not None and is_due and now >= self._not_before:
            self._begin(save)
            self._began_at = now
        elif now >= self._look_at:
            self._look_at = now + LOOK_S
            self._job = asyncio.create_task(look())
            self._is_saving = False

    def _begin(self, save: Job) -> "asyncio.Task[int]":
        self._job = job = asyncio.create_task(save())
        job.add_done_callback(self._note_save)
        self._is_saving = True
        return job

    def _note_save(self, job: "asyncio.Task[int]") -> None:
        """Note that a save job has ended, even if it was abandoned at its end."""
        if not job.cancelled() and job.exception() is None:
            self.ignored = False
            self._log.info("snapshot saved", position=job.result())

    def _is_done(self, now: float) -> bool:
        """Return whether the job is over; log a failed job, which is tried again later."""
        job = self._job
        if job is None or not job.done():
            return False
        self._job = None
        if job.cancelled():
            return True
        error = job.exception()
        if error is not None:
            self._not_before = now + RETRY_S
            self._log.warning("snapshot failed", cause=str(error))
            return True
        if self._is_saving:
            self._not_before = now + PAUSES * (now - self._began_at)
        elif self.ignored:
            return True
        stored, self._stored = self._stored, job.result()
        if stored > 0 and not self._stored:
            self._log.warning("snapshot lost", position=stored)
        return True

    async def finish(self, committed: int, save: Job | None) -> None:
        """Wait for a snapshot that is being saved, or save a snapshot; raise the errors of the job.

        committed, save: as for `work`. Raises TimeoutError after STOP_S.
        """
        async with asyncio.timeout(STOP_S):
            if self._job is not None:
                self._stored = max(self._stored, await self._job)
                self._job = None
            if save is not None and committed - self._stored >= self.every // STOPPING:
                await self._begin(save)

    def abandon(self) -> None:
        """Cancel the running job: the log is another one, or the connection is given up."""
        if self._job is not None:
            self._job.cancel()
            # It may have failed with the connection, and asyncio logs exceptions that are never
            # retrieved.
            self._job.add_done_callback(_dismiss_exception)
            self._job = None


def _dismiss_exception(job: "asyncio.Task[int]") -> None:
    if not job.cancelled():
        job.exception()
