"""An immutable first-in-first-out queue of distinct keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from immutables import Map

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True)
class Queue(Generic[K]):
    """Distinct keys in the order in which they were added; any key may be removed early.

    A change looks up at most three keys, and an iteration looks up each key once, regardless of how
    many keys have passed through the queue. A change does not modify the old queue. The order never
    depends on how a process hashes text.

    links: for each key, the key before it and the key after it; None at the ends.
    head, tail: the first key and the last key; None for an empty queue.
    """

    links: Map[K, tuple[K | None, K | None]] = Map()
    head: K | None = None
    tail: K | None = None

    def __len__(self) -> int:
        return len(self.links)

    def __contains__(self, key: str) -> bool:
        return key in self.links

    def __iter__(self) -> Iterator[K]:
        key = self.head
        while key is not None:
            yield key
            _, key = self.links[key]

    def put(self, key: K) -> "Queue[K]":
        """Return the queue with `key` at its end; the same queue if `key` is in it already."""
        if key in self.links:
            return self
        links = self.links.set(key, (self.tail, None))
        if self.tail is None:
            return Queue(links, key, key)
        before, _ = links[self.tail]
        return Queue(links.set(self.tail, (before, key)), self.head, key)

    def drop(self, key: K) -> "Queue[K]":
        """Return the queue without `key`; the same queue if `key` is not in it."""
        ends = self.links.get(key)
        if ends is None:
            return self
        before, after = ends
        links = self.links.delete(key)
        if before is not None:
            links = links.set(before, (links[before][0], after))
        if after is not None:
            links = links.set(after, (before, links[after][1]))
        head = after if before is None else self.head
        tail = before if after is None else self.tail
        return Queue(links, head, tail)

    def replace(self, key: K, other: K) -> "Queue[K]":
        """Return the queue with `other` in the place of `key`.

        `key` must be in the queue, and `other` must not.
        """
        before, after = self.links[key]
        links = self.links.delete(key).set(other, (before, after))
        if before is not None:
            links = links.set(before, (links[before][0], other))
        if after is not None:
            links = links.set(after, (other, links[after][1]))
        head = other if before is None else self.head
        tail = other if after is None else self.tail
        return Queue(links, head, tail)
