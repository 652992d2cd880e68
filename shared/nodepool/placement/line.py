"""Machines in the order in which they are taken: each machine is taken once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from nodepool.contract.affinity import Affinity
from nodepool.contract.keys import MachineKey
from nodepool.placement.label_index import LabelIndex
from nodepool.state.queue import Queue

Queues = Mapping[str, Queue[MachineKey]] | Mapping[str, Sequence[MachineKey]]
"""The machines of each NVLink domain, in order; the only domain is empty if no racks matter."""


class Shelf(NamedTuple):
    """Machines with an index of their labels; a set of machines is the bits of an integer.

    places: the bit of each machine.
    domains: the machines of each NVLink domain.
    """

    keys: tuple[MachineKey, ...]
    places: Mapping[MachineKey, int]
    domains: Mapping[str, int]
    labels: LabelIndex

    @classmethod
    def of(
        cls,
        queues: Queues,
        labels_of: Callable[[MachineKey], Mapping[str, str]],
    ) -> "Shelf":
        """Return the shelf with the machines of each NVLink domain, in order."""
        keys, domains = list[MachineKey](), dict[str, int]()
        for domain in sorted(queues):
            first = len(keys)
            keys.extend(queues[domain])
            domains[domain] = (1 << len(keys)) - (1 << first)
        labels = [labels_of(key) for key in keys]
        index = LabelIndex(len(keys), lambda name: [each.get(name) for each in labels])
        return cls(tuple(keys), {key: place for place, key in enumerate(keys)}, domains, index)


class Line:
    """The machines that are left while they are shared out.

    left: how many machines are left.

    Most NodePools have no node affinity. For them, only the machines that they get are read. The
    labels of all machines are read once a NodePool with an affinity takes its turn.
    """

    def __init__(self, queues: Queues, shelf: Callable[[], Shelf]) -> None:
        self._counts = {domain: len(queue) for domain, queue in queues.items()}
        self.left = sum(self._counts.values())
        self._queues = queues
        self._in_order: dict[str, Iterator[MachineKey]] = {}
        self._find_shelf = shelf
        self._taken: set[MachineKey] = set()
        self._gone = self._accepted = 0
        self._affinity: Affinity | None = None
        self._unmarked: list[MachineKey] = []

    def fitting(self, affinity: Affinity | None) -> dict[str, int]:
        """Return how many machines left satisfy an affinity, per NVLink domain; None accepts all.

        The only domain of machines that do not come in racks is empty.
        """
        if affinity is None:
            return dict(self._counts)
        bits = self._bits(affinity)
        return {each: (bits & mask).bit_count() for each, mask in self._shelf.domains.items()}

    def take(self, affinity: Affinity | None, count: int, domain: str = "") -> list[MachineKey]:
        """Take at most `count` of the machines left in a domain that satisfy an affinity."""
        if not self._counts.get(domain):
            return []
        if affinity is None:
            if domain not in self._in_order:
                self._in_order[domain] = iter(self._queues[domain])
            left = (key for key in self._in_order[domain] if key not in self._taken)
            keys = list(islice(left, count))
            self._unmarked += keys
        else:
            keys = self._first(self._bits(affinity) & self._shelf.domains[domain], count)
        self._taken.update(keys)
        self._counts[domain] -= len(keys)
        self.left -= len(keys)
        return keys

    @cached_property
    def _shelf(self) -> Shelf:
        return self._find_shelf()

    def _bits(self, affinity: Affinity) -> int:
        shelf = self._shelf
        for key in self._unmarked:
            self._gone |= 1 << shelf.places[key]
        self._unmarked.clear()
        if affinity is not self._affinity:
            self._affinity, self._accepted = affinity, shelf.labels.find_accepted(affinity)
        return self._accepted & ~self._gone

    def _first(self, bits: int, count: int) -> list[MachineKey]:
        taken: list[MachineKey] = []
        while bits and len(taken) < count:
            first = bits & -bits
            taken.append(self._shelf.keys[first.bit_length() - 1])
            self._gone |= first
            bits ^= first
        return taken


class Count(Line):
    """Machines of which only the number matters, because each NodePool accepts any of them."""

    def __init__(self, count: int) -> None:
        super().__init__({}, lambda: Shelf.of({}, lambda _: {}))
        self._counts, self.left = {"": count}, count

    def take(self, _affinity: Affinity | None, count: int, _domain: str = "") -> list[MachineKey]:
        """Take at most `count` machines, which have no names."""
        taken = min(count, self.left)
        self.left -= taken
        self._counts[""] = self.left
        return [MachineKey("")] * taken
