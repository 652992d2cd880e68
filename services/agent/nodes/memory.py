"""Remembers facts about Nodes over time, by the clock of this process; pure."""

from dataclasses import replace
from typing import Final

from agent.nodes.marks import claim, has_startup_taint
from agent.nodes.objects import NodeObject, WantedNode
from agent.nodes.record import Managed, read_record
from nodepool.contract.log import LogId
from nodepool.contract.well_known import MANAGED

SETTLED_S: Final = 1.0
"""How long the scheduler may still bind Pods after a cordon; the longest time seen is 0.2 s."""
LAST_SEEN_MAX: Final = 2_000
"""How many objects of deleted Nodes are remembered; beyond that, the oldest are forgotten."""


class NodeMemory:
    """The memory of Nodes; every `now` is in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._unwanted: dict[str, float] = {}
        self._last_seen: dict[str, NodeObject] = {}
        self._claimed: dict[str, tuple[str, Managed]] = {}
        self._asked: dict[str, tuple[str, float]] = {}
        self._proven: dict[str, str] = {}

    def note_change(self, name: str, old: NodeObject | None, new: NodeObject | None) -> None:
        """Note that a Node object was created, changed or deleted."""
        if new is not None:
            self._last_seen.pop(name, None)
            return
        self._unwanted.pop(name, None)
        self._claimed.pop(name, None)
        self.forget_list(name)
        if old is not None and MANAGED in old.annotations:
            self._last_seen[name] = old
            if len(self._last_seen) > LAST_SEEN_MAX:
                del self._last_seen[next(iter(self._last_seen))]

    def claim(self, found: NodeObject, wanted: WantedNode | None, log: LogId) -> Managed | None:
        """Return the claim of a new Node, and note the claim if the bus wants the Node.

        The first patch of the Node records its claim, so a Node that joins costs one patch. Until
        then, only a process that has seen the bus want the Node knows its stay.
        """
        is_new = MANAGED not in found.annotations and has_startup_taint(found)
        if wanted is not None and is_new and self._claimed_as(found) is None:
            # On a Node that is new to the control plane, any cordon was set by hand.
            first = replace(claim(wanted, log), unschedulable=False)
            self._claimed[found.name] = found.uid, first
        return self._claimed_as(found)

    def record_of(self, found: NodeObject) -> Managed | None:
        """Return the record of a Node, or the claim of a new Node; None without both."""
        return read_record(found) or self._claimed_as(found)

    def _claimed_as(self, found: NodeObject) -> Managed | None:
        uid, claimed = self._claimed.get(found.name, ("", None))
        return claimed if uid == found.uid else None

    def last_seen(self, name: str) -> NodeObject | None:
        """Return a deleted Node as it was before its deletion; None if that is not known."""
        return self._last_seen.get(name)

    def forget(self, name: str) -> None:
        """Forget a Node that neither side has any more."""
        self._last_seen.pop(name, None)

    def unwanted_since(self, name: str, now: float, *, is_wanted: bool) -> float:
        """Return since when the bus lacks a Node; `now` if the bus wants the Node."""
        if is_wanted:
            self._unwanted.pop(name, None)
            return now
        return self._unwanted.setdefault(name, now)

    def list_at(self, name: str, key: str, now: float) -> float:
        """Return from when a list of the Pods of a Node proves what the key names."""
        asked = self._asked.get(name)
        if asked is None or asked[0] != key:
            asked = self._asked[name] = key, now
        return asked[1] + SETTLED_S

    def count_asked(self) -> int:
        """Return how many Nodes need a list of their Pods."""
        return sum(self._proven.get(name) != key for name, (key, _) in self._asked.items())

    def note_list(self, name: str, key: str) -> None:
        """Note that the Pods of a Node were listed for this key."""
        self._proven[name] = key

    def find_proven_key(self, name: str) -> str:
        """Return the key that the last list of the Pods of a Node proves; empty without a list."""
        return self._proven.get(name, "")

    def forget_list(self, name: str) -> None:
        """Forget what is to be proven of a Node, and what was proven."""
        self._asked.pop(name, None)
        self._proven.pop(name, None)
