"""Sums the time of Nodes over a window, in whole microseconds, from their events in order."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from nodepool.contract.keys import NodeKey
from nodepool.usage.nodes import Account, Counted, CountedNode, evolve
from nodepool.usage.uses import Use

MICROSECOND: Final = timedelta(microseconds=1)
Sums = Mapping[tuple[Account, Use, str], int]
"""Microseconds, by whose the Nodes are, their use, and the cause if they are lost."""


class Meter:
    """What the time of Nodes was used for from `since` up to `until`.

    nodes: the Nodes at the beginning, if the events before it are not read; it takes as much memory
      as there are Nodes at a time, however long the window is.
    """

    def __init__(
        self,
        since: datetime,
        until: datetime,
        nodes: Mapping[NodeKey, CountedNode] | None = None,
    ) -> None:
        self.since, self.until = since, until
        self._nodes = {key: (node, since) for key, node in (nodes or {}).items()}
        self._now = datetime.min.replace(tzinfo=since.tzinfo)
        self._sums: Counter[tuple[Account, Use, str]] = Counter()

    def add(self, event: Counted, time: datetime) -> None:
        """Count up to the next event, which the log stored at `time`.

        If the clock of the server was put back, no time passes until it is where it was.
        """
        self._now = now = max(self._now, time)
        key = event.node_key
        known = self._nodes.get(key)
        before = known[0] if known is not None else None
        after = evolve(before, event)
        if after is before:
            return
        if known is not None:
            if after is not None and after.entry == known[0].entry:
                self._nodes[key] = after, known[1]
                return
            self._count(*known, now)
        if after is not None:
            self._nodes[key] = after, now
        elif known is not None:
            del self._nodes[key]

    def sums(self) -> Sums:
        """Return the sums, in which each Node that there is goes on as it is until `until`."""
        counted = Counter(self._sums)
        for node, began in self._nodes.values():
            counted[node.entry] += self._overlap(began, self.until)
        return {entry: micros for entry, micros in counted.items() if micros}

    def _count(self, node: CountedNode, began: datetime, ended: datetime) -> None:
        micros = self._overlap(began, ended)
        if micros:
            self._sums[node.entry] += micros

    def _overlap(self, began: datetime, ended: datetime) -> int:
        passed = min(ended, self.until) - max(began, self.since)
        return max(passed // MICROSECOND, 0)
