"""The Nodes of a NodePool as a table: filtered, what is wrong first, a page at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from console.view.model import Member, Place
from console.view.nodes import describe_node, rank
from console.view.paging import Cut, cut, has_words, read_filter, read_page
from console.view.words import Word


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A Node in the table; `since` is when it was assigned to its NodePool."""

    place: Place
    word: Word
    rack: str
    about: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class NodeTable:
    """A page of the table.

    text: words that a Node must have: in its name, state, rack or what is special about it.
    count: how many Nodes there are without the filter; has_racks: whether any is in a rack.
    """

    text: str
    rows: tuple[NodeRow, ...]
    cut: Cut
    count: int
    has_racks: bool

    def query(self, page: int) -> Mapping[str, object]:
        """Return the query of an address of another page of this table."""
        return {"by": "table", "q": self.text, "page": page if page > 1 else ""}


def build_table(members: Sequence[Member], query: Mapping[str, str]) -> NodeTable:
    """Return the page of the table that an address asks for."""
    text = read_filter(query)
    shown = [each for each in members if not text or _matches(each, text)]
    shown.sort(key=lambda each: (rank(each), each.place))
    page = cut(len(shown), read_page(query))
    rows = tuple(map(_row, shown[page.start : page.end]))
    has_racks = any(each.facts.domain for each in members)
    return NodeTable(text, rows, page, len(members), has_racks)


def _matches(member: Member, text: str) -> bool:
    node = member.facts
    return has_words(
        text, (node.name, member.word.text, node.domain or "no rack", describe_node(node))
    )


def _row(member: Member) -> NodeRow:
    node = member.facts
    return NodeRow(member.place, member.word, node.domain, describe_node(node), node.created)
