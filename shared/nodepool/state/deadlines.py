"""Keys and the moments at which they are due, in an immutable value."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from immutables import Map

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True)
class Deadlines(Generic[K]):
    """At most one moment for each key; `buckets` holds the keys of each second of Unix time.

    A change takes logarithmic time, and does not modify the old value.
    """

    moments: Map[K, datetime] = Map()
    buckets: Map[int, Map[K, bool]] = Map()

    def put(self, key: K, due: datetime) -> "Deadlines[K]":
        """Return the deadlines with `key` due at this moment and at no other."""
        rest = self.drop(key)
        second = int(due.timestamp())
        bucket = rest.buckets.get(second, Map()).set(key, True)
        return Deadlines(rest.moments.set(key, due), rest.buckets.set(second, bucket))

    def drop(self, key: K) -> "Deadlines[K]":
        """Return the deadlines without `key`; the same value if `key` has no deadline."""
        due = self.moments.get(key)
        if due is None:
            return self
        second = int(due.timestamp())
        bucket = self.buckets[second].delete(key)
        buckets = self.buckets.set(second, bucket) if bucket else self.buckets.delete(second)
        return Deadlines(self.moments.delete(key), buckets)

    def due(self, now: datetime, limit: int) -> tuple[K, ...]:
        """Return at most `limit` keys whose moment has come, earliest first, then by key."""
        overdue: list[tuple[datetime, K]] = []
        for second in sorted(second for second in self.buckets if second <= now.timestamp()):
            overdue += ((self.moments[key], key) for key in self.buckets[second])
            if len(overdue) >= limit and second < int(now.timestamp()):
                break
        return tuple(key for due, key in sorted(overdue) if due <= now)[:limit]

    def next(self) -> datetime | None:
        """Return the earliest moment of all keys; None if no key has one."""
        if not self.buckets:
            return None
        return min(self.moments[key] for key in self.buckets[min(self.buckets)])
