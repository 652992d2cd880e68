"""A line of NodePools in the order in which they began to wait; it finds the first that fits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from immutables import Map

from nodepool.contract.keys import PoolKey

SPARSE: Final = 4
"""With more than this many places for each NodePool in a line, its places are numbered again."""
PLACE_BITS: Final = 48
"""How many low bits of a tree node's number hold its index; the higher bits hold its level."""


@dataclass(frozen=True, slots=True)
class Line:
    """NodePools in the order in which they joined, each with the number of Nodes that it lacks.

    The search for the first NodePool that fits, and each change, take time logarithmic in `tail`.
    A change returns a new line, and leaves the old line as it is.

    places: the place of each NodePool.
    keys: the NodePool at each place; the place of a NodePool that has left stays empty.
    least: a binary tree over the places. A tree node of level 0 holds how many Nodes the NodePool
        at its index lacks. A tree node of a higher level holds the smaller number of its two
        children. The tree does not contain NodePools to pass over.
    tail: the place of the next NodePool that joins.
    """

    places: Map[PoolKey, int] = Map()
    keys: Map[int, PoolKey] = Map()
    least: Map[int, int] = Map()
    tail: int = 0

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, key: str) -> bool:
        return key in self.places

    def __iter__(self) -> Iterator[PoolKey]:
        return (self.keys[place] for place in sorted(self.keys))

    def put(self, key: PoolKey, lacks: int | None) -> "Line":
        """Return the line with the Nodes that `key` lacks, at its place or at the end.

        lacks: how many Nodes `key` lacks; None to pass over `key`.
        """
        place = self.places.get(key)
        if place is not None:
            return Line(self.places, self.keys, self._with(place, lacks, self.tail), self.tail)
        place, tail = self.tail, self.tail + 1
        least = self._with(place, lacks, tail)
        return Line(self.places.set(key, place), self.keys.set(place, key), least, tail)

    def drop(self, key: PoolKey) -> "Line":
        """Return the line without `key`; the same line if `key` is not in it."""
        place = self.places.get(key)
        if place is None:
            return self
        if len(self.places) == 1:
            return Line()
        least = self._with(place, None, self.tail)
        line = Line(self.places.delete(key), self.keys.delete(place), least, self.tail)
        return line if line.tail <= SPARSE * len(line.places) else line._number_again()

    def _number_again(self) -> "Line":
        """Return the line with its places numbered from 0: places that were left count no more."""
        line = Line()
        for key in self:
            line = line.put(key, self.least.get(_node(0, self.places[key])))
        return line

    def takes_part(self, key: PoolKey) -> bool:
        """Return whether a NodePool is in the line and not passed over."""
        place = self.places.get(key)
        return place is not None and _node(0, place) in self.least

    def lacks(self, key: PoolKey) -> int:
        """Return how many Nodes a NodePool lacks that is in the line and not passed over."""
        return self.least[_node(0, self.places[key])]

    def first(self, room: int) -> PoolKey | None:
        """Return the first NodePool that lacks at most `room` Nodes; None if no NodePool does."""
        level, index = _levels(self.tail), 0
        if not self._fits(level, index, room):
            return None
        while level:
            level, index = level - 1, 2 * index
            index += not self._fits(level, index, room)
        return self.keys[index]

    def _fits(self, level: int, index: int, room: int) -> bool:
        least = self.least.get(_node(level, index))
        return least is not None and least <= room

    def _with(self, place: int, lacks: int | None, tail: int) -> Map[int, int]:
        """Return the tree with another number at a place; `tail` is the next free place."""
        least, index = _set(self.least, _node(0, place), lacks), place
        for level in range(1, _levels(tail) + 1):
            index >>= 1
            children = (least.get(_node(level - 1, child)) for child in (2 * index, 2 * index + 1))
            smaller = min((each for each in children if each is not None), default=None)
            least = _set(least, _node(level, index), smaller)
        return least


def _levels(tail: int) -> int:
    """Return how many levels the tree has above its leaves; `tail` is the next free place."""
    return max(0, tail - 1).bit_length()


def _node(level: int, index: int) -> int:
    return level << PLACE_BITS | index


def _set(least: Map[int, int], node: int, value: int | None) -> Map[int, int]:
    if value is not None:
        return least.set(node, value)
    return least.delete(node) if node in least else least
