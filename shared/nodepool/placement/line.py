"""Machines in a fixed order, from which NodePools take machines that satisfy an affinity."""

from collections.abc import Sequence

from nodepool.contract.affinity import Affinity
from nodepool.placement.label_index import LabelIndex
from nodepool.placement.machines import Machine, labels_of


class MachineLine:
    """Machines in a fixed order, each of which is taken once; places are numbered from 0.

    Without an affinity, machines are taken from the front, in time proportional to their number.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._index = LabelIndex(len(machines), self._values)
        self._labels: list[dict[str, str]] = []
        self._front = 0
        self._picked: set[int] = set()
        self._gone = 0  # The bits of machines that were picked behind the front.

    def take(self, affinity: Affinity | None, count: int) -> list[int]:
        """Take at most `count` machines that satisfy an affinity; return their places."""
        return self._first(count) if affinity is None else self._fitting(affinity, count)

    def _first(self, count: int) -> list[int]:
        taken: list[int] = []
        while self._front < len(self._machines) and len(taken) < count:
            if self._front not in self._picked:
                taken.append(self._front)
            self._front += 1
        return taken

    def _fitting(self, affinity: Affinity, count: int) -> list[int]:
        fitting = self._index.accepted(affinity) & ~self._gone
        marks = f"{fitting >> self._front:b}"[::-1]
        taken: list[int] = []
        place = marks.find("1")
        while place >= 0 and len(taken) < count:
            taken.append(self._front + place)
            place = marks.find("1", place + 1)
        if taken:
            self._picked.update(taken)
            self._gone |= fitting & ((2 << taken[-1]) - 1)
        return taken

    def _values(self, label: str) -> list[str | None]:
        if not self._labels:
            self._labels = [labels_of(machine) for machine in self._machines]
        return [labels.get(label) for labels in self._labels]
