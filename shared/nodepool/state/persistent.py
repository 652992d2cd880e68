"""Values that change by making a new one: deadlines of moments, and a queue that keeps its order.

Both are nested persistent maps, so a change costs the logarithm of the size and the old value stays
what it was; iteration never depends on how a process hashes text.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from immutables import Map


@dataclass(frozen=True, slots=True)
class Deadlines:
    """What falls due when: at most one moment for each key, in buckets of a second."""

    moments: Map[str, datetime] = Map()
    buckets: Map[int, Map[str, bool]] = Map()

    def put(self, key: str, due: datetime) -> "Deadlines":
        """The deadlines with `key` due at this moment and no other."""
        rest = self.drop(key)
        second = int(due.timestamp())
        bucket = rest.buckets.get(second, Map()).set(key, True)
        return Deadlines(rest.moments.set(key, due), rest.buckets.set(second, bucket))

    def drop(self, key: str) -> "Deadlines":
        """The deadlines without `key`; the same deadlines where it was not in it."""
        due = self.moments.get(key)
        if due is None:
            return self
        second = int(due.timestamp())
        bucket = self.buckets[second].delete(key)
        buckets = self.buckets.set(second, bucket) if bucket else self.buckets.delete(second)
        return Deadlines(self.moments.delete(key), buckets)

    def due(self, now: datetime, limit: int) -> tuple[str, ...]:
        """At most `limit` keys whose moment has come, earliest first, then by key."""
        found: list[tuple[datetime, str]] = []
        for second in sorted(second for second in self.buckets if second <= now.timestamp()):
            found += ((self.moments[key], key) for key in self.buckets[second])
            if len(found) >= limit and second < int(now.timestamp()):
                break
        return tuple(key for due, key in sorted(found) if due <= now)[:limit]

    def next(self) -> datetime | None:
        """The earliest moment of all; None for an empty deadlines."""
        if not self.buckets:
            return None
        return min(self.moments[key] for key in self.buckets[min(self.buckets)])


@dataclass(frozen=True, slots=True)
class Queue:
    """Distinct keys in the order in which they came; any of them may leave early."""

    places: Map[str, int] = Map()
    keys: Map[int, str] = Map()
    head: int = 0
    tail: int = 0

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, key: str) -> bool:
        return key in self.places

    def __iter__(self) -> Iterator[str]:
        found, place = 0, self.head
        while found < len(self.places):
            key = self.keys.get(place)
            place += 1
            if key is not None:
                found += 1
                yield key

    def put(self, key: str) -> "Queue":
        """The queue with `key` at its end; the same queue where it waits already."""
        if key in self.places:
            return self
        return Queue(
            self.places.set(key, self.tail), self.keys.set(self.tail, key), self.head, self.tail + 1
        )

    def drop(self, key: str) -> "Queue":
        """The queue without `key`; the same queue where it was not in it."""
        place = self.places.get(key)
        if place is None:
            return self
        places, keys = self.places.delete(key), self.keys.delete(place)
        if not places:
            return Queue(places, keys, self.tail, self.tail)
        return replace(self, places=places, keys=keys, head=_first(keys, self.head))


def _first(keys: Map[int, str], place: int) -> int:
    while place not in keys:
        place += 1
    return place
