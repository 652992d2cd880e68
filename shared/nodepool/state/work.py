"""The work queue of a service: the keys that it has to look at again, now or at a moment."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Generic, TypeVar

from nodepool.state.deadlines import Deadlines
from nodepool.state.queue import Queue

K = TypeVar("K", bound=str)
IMMEDIATELY = datetime(1970, 1, 1, tzinfo=UTC)
"""When a key that is ready is due: a moment that lies before all others."""


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
        """At most `limit` keys: those that are ready, then others whose moment has come."""
        ready = tuple(islice(self.ready, limit))
        room = limit - len(ready)
        if not room:
            return ready
        overdue = self.deadlines.due(now, limit)
        return (*ready, *islice((key for key in overdue if key not in self.ready), room))

    def take(self, now: datetime, limit: int) -> tuple[tuple[K, ...], "WorkQueue[K]"]:
        """At most `limit` keys that are due, and the work queue without them.

        A key that is taken is not ready any more; its moment stays where that has not come yet.
        """
        keys, ready, deadlines = self.due(now, limit), self.ready, self.deadlines
        if not keys:
            return keys, self
        for key in keys:
            ready = ready.drop(key)
            moment = deadlines.moments.get(key)
            if moment is not None and moment <= now:
                deadlines = deadlines.drop(key)
        return keys, WorkQueue(ready, deadlines)

    def next(self) -> datetime | None:
        """When there is something to do: `IMMEDIATELY`, a moment, or never (None)."""
        return IMMEDIATELY if len(self.ready) else self.deadlines.next()


@dataclass(frozen=True, slots=True)
class WithWork(Generic[K]):
    """What the state of a service with a work queue is derived from."""

    work: WorkQueue[K] = WorkQueue()
