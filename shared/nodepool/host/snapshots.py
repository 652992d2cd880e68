"""When to save a snapshot of a replica, and saving it in the background."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from nodepool.host.logs import Logger
from nodepool.nats.objects.saving import Effort
from nodepool.nats.objects.snapshots import Newest

REPLAY_S = 1.0
"""A snapshot is saved once the work since the stored one has taken this long. A restart does no
more than that work again, plus the work of the seconds in which a snapshot was saved."""
SNAPSHOT_AFTER = 50_000
"""A snapshot is saved after this many positions of the log at the latest."""
STOPPING = 5
"""A stopping service saves another snapshot after a fifth of the positions or of the work."""
STOP_S = 5.0
"""How long a snapshot may delay the exit of a service."""
RETRY_S = 10.0
"""The pause after a snapshot that failed."""
PAUSES = 19
"""The pause after a snapshot, as a multiple of the time for which saving it kept the process busy.
So saving takes a twentieth of the time at most."""
LOOK_S = 5.0
"""How often to check that the snapshot still exists."""

Job = Callable[[], Coroutine[None, None, int]]
"""Saves or looks for a snapshot; returns the position of the stored snapshot, 0 if none."""


class Snapshots:
    """Saves a snapshot once a restart would have to do much work again.

    That is after REPLAY_S of work, or when the stored snapshot is `every` positions behind the
    committed position. It saves another snapshot at once if the log is to begin after the stored
    snapshot. Positions are counted from the stored snapshot, not from the start of the
    process, so even a service that restarts again and again gets a snapshot. One job runs at a
    time.

    effort: what the last snapshot has cost.
    newest: the snapshot that the next one adds to; none for a follower, which saves none.
    ignored: whether the stored snapshot is unusable, for example because its state is wrong. It
        counts as missing until this process has saved another snapshot.
    """

    def __init__(self, every: int, log: Logger, *, ignored: bool = False) -> None:
        self.effort = Effort()
        self.newest = Newest[Any]()
        self.ignored = ignored
        self.every = every
        self._unsaved_s = self._saving_s = 0.0
        self._log = log
        self._stored = 0
        self._job: asyncio.Task[int] | None = None
        self._is_saving = False
        self._not_before = 0.0
        self._look_at = 0.0

    def note_stored_position(self, position: int, *, is_usable: bool = True) -> None:
        """Note the position up to which the stored snapshot goes; 0 if no snapshot is usable.

        is_usable: False if a snapshot is stored that cannot be used; it is then `ignored`.
        """
        self._stored = position
        self.ignored = self.ignored or not is_usable

    def note_work(self, seconds: float) -> None:
        """Note how much processor time reading or processing inputs has taken."""
        self._unsaved_s += seconds

    def work(
        self, committed: int, now: float, *, save: Job | None, look: Job, first: int = 1
    ) -> None:
        """Start the job that is due, in the background; `save` is None for a follower.

        committed: the position up to which the replica's state goes.
        first: the position at which the log begins, or is to begin.
        now: seconds of a monotonic clock.
        """
        if self._job is not None and not self._is_done(now):
            return
        if save is None:
            self.newest.saved = None
        is_cut = first > self._stored + 1 and committed > self._stored
        is_due = is_cut or self._lags(committed, self.every, REPLAY_S)
        if save is not None and is_due and now >= self._not_before:
            self._begin(save)
        elif now >= self._look_at:
            self._look_at = now + LOOK_S
            self._job = asyncio.create_task(look())
            self._is_saving = False

    def _lags(self, committed: int, positions: int, work_s: float) -> bool:
        """Return whether the stored snapshot lacks so many positions or so much work."""
        missing = committed - self._stored
        return missing >= positions or (missing > 0 and self._unsaved_s >= work_s)

    def _begin(self, save: Job) -> "asyncio.Task[int]":
        self._job = job = asyncio.create_task(save())
        job.add_done_callback(self._note_save)
        self._is_saving = True
        self._saving_s, self.effort.seconds = self._unsaved_s, 0.0
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
            self._not_before = now + PAUSES * self.effort.seconds
            self._unsaved_s -= self._saving_s
        elif self.ignored:
            return True
        elif job.result() > self._stored:  # Another replica has saved it.
            self._unsaved_s = 0.0
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
            if save is not None and self._lags(
                committed, self.every // STOPPING, REPLAY_S / STOPPING
            ):
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
