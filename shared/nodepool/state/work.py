"""The work queue of a service: the keys to reconcile, now or at a later moment."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Generic, TypeVar

from immutables import Map

from nodepool.state.deadlines import Deadlines
from nodepool.state.queue import Queue
from nodepool.state.values import replace

K = TypeVar("K", bound=str)
IMMEDIATELY = datetime(1970, 1, 1, tzinfo=UTC)
"""The moment at which a ready key is due, before all other moments."""
RETRY_AFTER = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15))
"""The delays before a key is tried again: after its first, its second, and each later failure."""


@dataclass(frozen=True, slots=True)
class WorkQueue(Generic[K]):
    """Keys that are ready, in the order in which they were added, and keys that are due later.

    A key may be both: ready for one reason, and due later for another.

    failures: how often each key failed since it last succeeded.
    """

    ready: Queue[K] = Queue()
    deadlines: Deadlines[K] = Deadlines()
    failures: Map[K, int] = Map()

    def put(self, key: K) -> "WorkQueue[K]":
        """Return the work queue with `key` ready, behind all other ready keys."""
        ready = self.ready.put(key)
        return self if ready is self.ready else replace(self, ready=ready)

    def put_at(self, key: K, due: datetime) -> "WorkQueue[K]":
        """Return the work queue with `key` due at this moment, in place of any other."""
        return replace(self, deadlines=self.deadlines.put(key, due))

    def retry_later(self, key: K, now: datetime) -> "WorkQueue[K]":
        """Return the work queue with `key` due again after a delay that grows with its failures."""
        before = self.failures.get(key, 0)
        due = now + RETRY_AFTER[min(before, len(RETRY_AFTER) - 1)]
        return replace(self.put_at(key, due), failures=self.failures.set(key, before + 1))

    def is_retried(self, key: K) -> bool:
        """Return whether `key` failed, and is due to be tried again."""
        return key in self.failures and key in self.deadlines.moments

    def clear_failures(self, key: K) -> "WorkQueue[K]":
        """Return the work queue with the failures of `key`, and the retry that was due, removed."""
        if key not in self.failures:
            return self
        deadlines = self.deadlines.drop(key)
        return replace(self, deadlines=deadlines, failures=self.failures.delete(key))

    def drop(self, key: K) -> "WorkQueue[K]":
        """Return the work queue without `key`, whether it is ready, due later or failed before."""
        work = self.clear_failures(key)
        ready, deadlines = work.ready.drop(key), work.deadlines.drop(key)
        if ready is work.ready and deadlines is work.deadlines:
            return work
        return replace(work, ready=ready, deadlines=deadlines)

    def due(self, now: datetime, limit: int) -> tuple[K, ...]:
        """Return at most `limit` keys: first the ready keys, then keys whose moment has come."""
        ready = tuple(islice(self.ready, limit))
        room = limit - len(ready)
        if not room:
            return ready
        overdue = self.deadlines.due(now, limit)
        return (*ready, *islice((key for key in overdue if key not in self.ready), room))

    def take(self, now: datetime, limit: int) -> tuple[tuple[K, ...], "WorkQueue[K]"]:
        """Return at most `limit` keys that are due, and the work queue without them.

        A key that is taken is no longer ready. Its moment stays if that has not come yet.
        """
        keys, ready, deadlines = self.due(now, limit), self.ready, self.deadlines
        if not keys:
            return keys, self
        for key in keys:
            ready = ready.drop(key)
            moment = deadlines.moments.get(key)
            if moment is not None and moment <= now:
                deadlines = deadlines.drop(key)
        return keys, replace(self, ready=ready, deadlines=deadlines)

    def next(self) -> datetime | None:
        """Return the moment of the next work: `IMMEDIATELY`, a deadline, or None for never."""
        return IMMEDIATELY if len(self.ready) else self.deadlines.next()


@dataclass(frozen=True, slots=True)
class WithWork(Generic[K]):
    """The base class of the state of a service that has a work queue."""

    work: WorkQueue[K] = WorkQueue()
