"""Nodes: the word of each, what will happen to it, and the grid of a NodePool."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zlib import crc32

from console.view.model import Deadline, Member, Place
from console.view.words import Look, Word
from nodepool.contract.documents import Document, label
from nodepool.contract.timetable import BOOT_MAX, DRAIN_AFTER, GONE_AFTER
from nodepool.explanation.documents import POOL_LABEL, node_facts
from nodepool.explanation.leaving import has_job
from nodepool.explanation.node_facts import NodeFacts

NAMED_MAX: Final = 200
"""The most Nodes whose cells have names."""
CELLS_MAX: Final = 2_000
"""The most Nodes that have a cell each; a page with more Nodes shows counts."""
BLOCKERS_MAX: Final = 4
"""The most Pods that are named as the blockers of a drain."""
PART: Final = 32
"""How many cells a part of a grid has on average."""
ON_ITS_WAY: Final[Mapping[str, str]] = {
    "booting": "Booting",
    "verifying": "Verifying",
    "rebooting": "Rebooting",
}
"""The words for the phases in which nothing runs on a Node yet."""
NO_WORD: Final = Word("ask", "Unknown")
_WORKS: Final[tuple[Look, ...]] = ("ok", "idle")
"""The looks of Nodes that can run Pods, or do."""
_ORDER: Final[tuple[Look, ...]] = ("bad", "act", "out", "go", "off", "ask", *_WORKS)


def build_member(cluster: str, document: Document) -> Member:
    """Return a Node of a cluster from its document."""
    node = node_facts(document)
    return Member(
        Place(cluster, node.name),
        label(document, POOL_LABEL),
        node,
        word_of_node(node),
        list_deadlines(node),
        json.dumps(document).encode(),
    )


def word_of_node(node: NodeFacts) -> Word:
    """Return the state of a Node: what is wrong first, then what moves, then whether it works."""
    if node.preempted_since is not None:
        return Word("out", "Warned" if node.is_warned else "Draining")
    if node.phase in ON_ITS_WAY:
        return Word("go", ON_ITS_WAY[node.phase])
    if node.problems:
        return Word("bad", "Unhealthy")
    if node.removal:
        return Word("out", "Draining" if node.phase == "draining" else "Leaving")
    if node.phase == "draining":
        return Word("out", "Draining")
    if node.reserved:
        return Word("off", "Reserved")
    if has_job(node):
        return Word("off", "Locked")
    if node.phase == "cordoned":
        return Word("off", "Cordoned")
    if node.phase != "production":
        return NO_WORD
    return Word("ok", "Active") if node.active else Word("idle", "Idle")


def describe_node(node: NodeFacts) -> str:
    """Return what is special about a Node, in a few words; empty for an idle Node."""
    still = f"; still runs {work_of(node)}" if node.active else ""
    if node.preempted_since is not None:
        return f"is being preempted{still}"
    if node.problems:
        return f"{', '.join(node.problems)}{still}"
    if node.removal:
        return f"leaves: {node.removal}{still}"
    if node.cordon and node.phase != "production":
        return node.cordon
    return f"runs {work_of(node)}" if node.active else ""


def work_of(node: NodeFacts) -> str:
    """Return what runs on a Node, without the verb of the condition that says so."""
    return node.work.removeprefix("running: ") if node.active else ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A Node in a grid."""

    place: Place
    word: Word
    about: str


@dataclass(frozen=True, slots=True)
class Row:
    """The Nodes of a rack, or of a state.

    counts: how many Nodes have each word, if there are too many Nodes for cells.
    """

    title: str
    cells: tuple[Cell, ...]
    counts: tuple[tuple[Word, int], ...]

    @property
    def parts(self) -> Iterator[tuple[Cell, ...]]:
        """Yield some cells at a time, so that an open page gets only the parts that have changed.

        The name of a Node alone decides whether it begins a part: a part stays as it is when Nodes
        elsewhere come and go.
        """
        begin = 0
        for number, cell in enumerate(self.cells):
            if number > begin and crc32(cell.place.name.encode()) % PART == 0:
                yield self.cells[begin:number]
                begin = number
        if self.cells:
            yield self.cells[begin:]


@dataclass(frozen=True, slots=True)
class Grid:
    """All Nodes of a NodePool."""

    by: str
    rows: tuple[Row, ...]
    has_names: bool
    count: int


def build_grid(members: Sequence[Member], by: str) -> Grid:
    """Return Nodes as a grid by `rack` or by `state`; Nodes without racks always by state."""
    has_racks = any(each.facts.domain for each in members)
    by = by if by in ("rack", "state", "table") else ("rack" if has_racks else "state")
    by = "state" if by == "rack" and not has_racks else by
    rows: dict[str, list[Member]] = {}
    for each in members:
        title = (each.facts.domain or "no rack") if by == "rack" else each.word.text
        rows.setdefault(title, []).append(each)
    titles = sorted(rows) if by == "rack" else sorted(rows, key=lambda title: rank(rows[title][0]))
    is_counted = len(members) > CELLS_MAX
    return Grid(
        by,
        tuple(_row(title, rows[title], is_counted=is_counted) for title in titles),
        len(members) <= NAMED_MAX,
        len(members),
    )


def _row(title: str, members: Sequence[Member], *, is_counted: bool) -> Row:
    if is_counted:
        return Row(title, (), _count(members))
    return Row(title, tuple(map(_cell, members)), ())


def _cell(member: Member) -> Cell:
    node = member.facts
    return Cell(member.place, member.word, describe_node(node))


def _count(members: Sequence[Member]) -> tuple[tuple[Word, int], ...]:
    """Return how many Nodes have each word: what is wrong first."""
    counts = Counter(each.word for each in members)
    return tuple(sorted(counts.items(), key=lambda each: _place(each[0])))


def rank(member: Member) -> int:
    """Return the place of a Node in the order of states: what is wrong comes first."""
    return _place(member.word)


def _place(word: Word) -> int:
    return _ORDER.index(word.look) if word.look in _ORDER else len(_ORDER)


def count_words(members: Sequence[Member]) -> tuple[tuple[Word, int], ...]:
    """Return how many Nodes have each word: Active, then Idle, and what is wrong last."""
    counts = _count(members)
    works = tuple(each for each in counts if each[0].look in _WORKS)
    return *works, *(each for each in reversed(counts) if each not in works)


def list_deadlines(node: NodeFacts) -> tuple[Deadline, ...]:
    """Return what will happen to a Node and when, soonest first."""
    found = list[Deadline]()
    if node.preempted_since is not None:
        if node.is_warned:
            begins = node.preempted_since + DRAIN_AFTER
            why = "2 min after the warning"
            found.append(Deadline(begins, "out", "begins to drain", "begin to drain", why))
        gone = node.preempted_since + GONE_AFTER
        about, many = (f"{verb} gone at the latest" for verb in ("is", "are"))
        found.append(Deadline(gone, "out", about, many, "7 min after the warning"))
    if not node.registered and node.created is not None:
        late = node.created + BOOT_MAX
        about = "has joined, or is given up and replaced"
        many = "have joined, or are given up and replaced"
        found.append(Deadline(late, "go", about, many, "boot deadline of 30 min"))
    if node.answer_by is not None:
        found.append(_answer(node.phase, node.answer_by))
    return tuple(sorted(found, key=lambda each: each.at))


def _answer(phase: str, by: datetime) -> Deadline:
    """Return what happens if a machine does not end its step in time, or does not answer."""
    match phase:
        case "rebooting":
            about = "has rebooted, or is given up and replaced"
            many = "have rebooted, or are given up and replaced"
            return Deadline(by, "go", about, many, "reboot deadline")
        case "verifying":
            about = "is verified, or is given up and replaced"
            many = "are verified, or are given up and replaced"
            return Deadline(by, "go", about, many, "verification deadline")
        case _:
            about = "is given up unless its machine answers"
            many = "are given up unless their machines answer"
            return Deadline(by, "bad", about, many, "answer to its cordon or drain")


def name_blockers(node: NodeFacts) -> str:
    """Return the names of the Pods that block the drain of a Node."""
    names = ", ".join(name for name, _ in node.blocking[:BLOCKERS_MAX])
    more = node.blocking_count - min(len(node.blocking), BLOCKERS_MAX)
    return names + (f" and {more} more" if more > 0 else "")
