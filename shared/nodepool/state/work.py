"""The work queue of a service: the keys that it has to look at again, now or at a moment."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Generic, TypeVar

from nodepool.state.deadlines import Deadlines
from nodepool.state.queue import Queue

K = TypeVar("K", bound=str)
IMMEDIATELY = datetime(1970, 1, 1, tzinfo=UTC)
"""The next moment of a work queue in which a key is ready."""


@dataclass(frozen=True, slots=True)
class WorkQueue(Generic[K]):
    """Keys that are ready, in the order in which they came, and keys that are due later.

    A key may be both: ready for one reason, and due later for another.
    """

    ready: Queue[K] = Queue()
    deadlines: Deadlines[K] = Deadlines()

    def put(self, key: K) -> "WorkQueue[K]":
        """The work queue with `key` ready, behind all others that are."""
        ready = self.ready.put(key)
        return self if ready is self.ready else replace(self, ready=ready)

    def put_at(self, key: K, due: datetime) -> "WorkQueue[K]":
        """The work queue with `key` due at this moment, instead of at any other."""
        return replace(self, deadlines=self.deadlines.put(key, due))

    def drop(self, key: K) -> "WorkQueue[K]":
        """The work queue without `key`, be it ready or due later."""
        ready, deadlines = self.ready.drop(key), self.deadlines.drop(key)
        if ready is self.ready and deadlines is self.deadlines:
            return self
        return WorkQueue(ready, deadlines)

    def due(self, now: datetime, limit: int) -> tuple[K, ...]:
        """At most `limit` keys: those that are ready, then those whose moment has come."""
        ready = tuple(key for key, _ in zip(self.ready, range(limit), strict=False))
        overdue = self.deadlines.due(now, limit - len(ready)) if len(ready) < limit else ()
        return (*ready, *(key for key in overdue if key not in self.ready))

    def next(self) -> datetime | None:
        """When there is something to do: `IMMEDIATELY`, a moment, or never (None)."""
        return IMMEDIATELY if len(self.ready) else self.deadlines.next()


@dataclass(frozen=True, slots=True)
class WithWork(Generic[K]):
    """What the state of a service with a work queue is derived from."""

    work: WorkQueue[K] = WorkQueue()
