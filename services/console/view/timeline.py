"""What will happen to a NodePool, and what happened: one list that runs through now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from console.view.model import Deadline, Happening, Member, Place, Pool
from console.view.node import waits_for_pods
from console.view.nodes import name_blockers
from console.view.words import Look
from nodepool.contract.documents import items, text

PAST_MAX: Final = 25
"""The most entries of the past."""
NAMED_MAX: Final = 4
"""The most Nodes that an entry names."""
TOGETHER: Final = timedelta(seconds=10)
"""Events of one kind within this time are one entry."""
TURNS_MAX: Final = 4
"""How many kinds of events may take turns and still be an entry each."""
OPEN_MAX: Final = 6
"""The most Nodes of which the timeline says what they wait for."""
OPEN: Final[dict[str, Look]] = {
    "Capacity": "wait",
    "Quota": "act",
    "Validated": "act",
    "Health": "bad",
}
"""The kinds of causes that end with an event, not at a deadline."""
_LOOKS: Final[dict[str, Look]] = {
    "CWNodePoolCreated": "ok",
    "CWNodeRegistered": "ok",
    "CWNodeUncordoned": "ok",
    "CWNodePoolScaledUp": "go",
    "CWNodePoolScaledDown": "go",
    "CWNodeAssigned": "go",
    "CWNodeRequestQueued": "go",
    "CWNodePoolMetadata": "go",
    "CWNodeCordoned": "off",
    "CWDrainNode": "out",
    "CWNodeDeleted": "out",
    "CWNodePoolRemoveNodes": "out",
    "CWNodeDeletionRequestSuccess": "out",
    "CWNodePoolNodesRemoved": "out",
    "CWNodePoolDeleted": "out",
    "CWInsufficientCapacity": "wait",
    "Preemption pending": "out",
    "Preemption in progress": "out",
    "Deleted for preemption": "out",
    "CWOverQuota": "act",
    "CWNodePoolQuotaCheckFailed": "bad",
}
_OF_NODES: Final = frozenset(
    {
        *("CWNodeAssigned", "CWNodeRegistered", "CWNodeCordoned", "CWNodeUncordoned"),
        *("CWDrainNode", "CWNodeDeleted", "CWNodeDeletionRequestSuccess"),
    }
)
"""Events that happen to one Node after another."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that will happen, or that happened.

    at: the time; None if the entry waits for an event.
    text: what happens, after the names of the Nodes. why: the reason, or the awaited event.
    nodes: Nodes to link to. hidden: how many more Nodes there are.
    positions: where in the log it is.
    """

    at: datetime | None
    look: Look
    text: str
    why: str = ""
    actor: str = ""
    nodes: tuple[Place, ...] = ()
    hidden: int = 0
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """The open entries, the deadlines to come, latest first, and the past, newest first."""

    open: tuple[Entry, ...]
    coming: tuple[Entry, ...]
    past: tuple[Entry, ...]


def build_timeline(pool: Pool, happenings: Sequence[Happening]) -> Timeline:
    """Return the timeline of a NodePool.

    A deadline that has passed is still to come: an event of the past says what has happened.
    """
    coming = list(_deadlines(pool.members))
    past = list(_past(happenings))
    past.sort(key=lambda entry: (_moment(entry), entry.positions), reverse=True)
    return Timeline(
        tuple(_open(pool)),
        tuple(sorted(coming, key=_moment, reverse=True)),
        tuple(past[:PAST_MAX]),
    )


def _moment(entry: Entry) -> datetime:
    assert entry.at is not None, "an open entry is no part of this list"
    return entry.at


def _open(pool: Pool) -> Iterator[Entry]:
    """Yield what a NodePool waits for without a deadline."""
    waiting = [each for each in pool.members if waits_for_pods(pool, each.facts)]
    for member in waiting[:OPEN_MAX]:
        why = f"{name_blockers(member.facts)} must end"
        yield Entry(None, "out", "waits for Pods", why, nodes=(member.place,))
    if len(waiting) > OPEN_MAX:
        more = len(waiting) - OPEN_MAX
        yield Entry(None, "out", f"{more} more {'waits' if more == 1 else 'wait'} for Pods")
    for cause in items(pool.explanation, "causes"):
        if look := OPEN.get(text(cause, "cause")):
            yield Entry(None, look, text(cause, "title"))


def _deadlines(members: Sequence[Member]) -> Iterator[Entry]:
    """Yield the deadlines of Nodes; Nodes with the same deadline share an entry."""
    shared: dict[tuple[datetime, str], tuple[Deadline, list[Place]]] = {}
    for member in members:
        for each in member.deadlines:
            key = each.at, each.about
            shared.setdefault(key, (each, []))[1].append(member.place)
    for deadline, places in shared.values():
        shown = tuple(places[:NAMED_MAX])
        hidden = len(places) - len(shown)
        words = deadline.about if len(places) == 1 else deadline.many
        yield Entry(deadline.at, deadline.look, words, deadline.why, nodes=shown, hidden=hidden)


def _past(happenings: Sequence[Happening]) -> Iterator[Entry]:
    """Yield entries; adjacent events of a kind share an entry, also if those of Nodes alternate."""
    groups: list[list[Happening]] = []
    for each in sorted(happenings, key=lambda each: each.position):
        near = groups[-1:]
        if each.reason in _OF_NODES:
            near = [group for group in groups[-TURNS_MAX:] if group[-1].reason in _OF_NODES]
        same = next((group for group in near if _is_same(group[-1], each)), None)
        if same is None:
            groups.append([each])
        else:
            same.append(each)
    yield from map(_entry, groups)


def _is_same(before: Happening, after: Happening) -> bool:
    same = (before.reason, before.actor) == (after.reason, after.actor)
    return same and after.time - before.time <= TOGETHER


def _entry(group: Sequence[Happening]) -> Entry:
    last = group[-1]
    look = _LOOKS.get(last.reason) or ("bad" if last.severity == "Warning" else "no")
    more = f", and {len(group) - 1} more like it" if len(group) > 1 else ""
    ends = {group[0].position: None, last.position: None}
    actor = "" if last.actor == "-" else last.actor
    words = last.message.rstrip(".") + more
    return Entry(last.time, look, words, last.reason, actor, positions=tuple(ends))
