"""A first-in-first-out queue of distinct keys that changes by making a new one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from immutables import Map

K = TypeVar("K", bound=str)
SPARSE = 4
GAPS_MAX = 64
"""A queue is renumbered once it has more places than `SPARSE` for each key, and `GAPS_MAX`."""


@dataclass(frozen=True, slots=True)
class Queue(Generic[K]):
    """Distinct keys in the order in which they came; any of them may leave early.

    A change costs the logarithm of the size on average, and the old queue stays what it was. The
    order never depends on how a process hashes text.

    places: the place of each key.
    keys: the key at each place; a key that left early leaves a gap.
    head: the first place that is taken; `tail` if none is.
    tail: the place for the next key.
    """

    places: Map[K, int] = Map()
    keys: Map[int, K] = Map()
    head: int = 0
    tail: int = 0

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, key: str) -> bool:
        return key in self.places

    def __iter__(self) -> Iterator[K]:
        seen, place = 0, self.head
        while seen < len(self.places):
            key = self.keys.get(place)
            place += 1
            if key is not None:
                seen += 1
                yield key

    def put(self, key: K) -> "Queue[K]":
        """The queue with `key` at its end; the same queue where it waits already."""
        if key in self.places:
            return self
        return Queue(
            self.places.set(key, self.tail), self.keys.set(self.tail, key), self.head, self.tail + 1
        )

    def drop(self, key: K) -> "Queue[K]":
        """The queue without `key`; the same queue where it was not in it."""
        place = self.places.get(key)
        if place is None:
            return self
        places, keys = self.places.delete(key), self.keys.delete(place)
        if not places:
            return Queue(places, keys, self.tail, self.tail)
        head = _first(keys, self.head)
        queue = replace(self, places=places, keys=keys, head=head)
        return queue if self.tail - head <= SPARSE * len(places) + GAPS_MAX else _dense(queue)


def _first(keys: Map[int, K], place: int) -> int:
    while place not in keys:
        place += 1
    return place


def _dense(queue: Queue[K]) -> Queue[K]:
    """The same queue without gaps: a key that stays for ever must not slow down the others."""
    keys = tuple(queue)
    places = Map((key, place) for place, key in enumerate(keys))
    return Queue(places, Map(enumerate(keys)), 0, len(keys))
