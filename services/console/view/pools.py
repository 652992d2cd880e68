"""The list of NodePools: filtered, grouped by who must act, and sorted."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from console.view.model import Place, Pool
from console.view.paging import Cut, cut, has_words, read_filter, read_page
from console.view.standing import TITLES, Group, Standing, stand
from nodepool.contract.counting import format_count

GROUPINGS: Final = {"state": "State", "cluster": "Cluster", "type": "Type"}
SORTINGS: Final = {"missing": "Missing Nodes", "since": "Since", "name": "Name"}
_RANKS: Final = {group: rank for rank, group in enumerate(Group)}
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Asked:
    """The query of the list; an unknown value counts as the default.

    text: words that a NodePool must have: in its name, type, zone, state or reason.
    page: which page of the list; the first one is 1.
    """

    text: str = ""
    state: str = ""
    by: str = "state"
    sort: str = "missing"
    page: int = 1

    def query(self, **changes: object) -> Mapping[str, object]:
        """Return the query of an address that asks for the same, but for some changes.

        Another page is asked for by its number alone.
        """
        asked = {"q": self.text, "state": self.state, "by": self.by, "sort": self.sort, **changes}
        usual = {"by": "state", "sort": "missing", "page": 1}
        return {name: value for name, value in asked.items() if value != usual.get(name, "")}


def read_asked(query: Mapping[str, str]) -> Asked:
    """Return what an address asks for."""
    state, by, sort = (query.get(name, "") for name in ("state", "by", "sort"))
    return Asked(
        read_filter(query),
        state if state in [*Group] else "",
        by if by in GROUPINGS else "state",
        sort if sort in SORTINGS else "missing",
        read_page(query),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A NodePool in the list; `preempted` counts its Nodes that are being preempted."""

    place: Place
    instance_type: str
    zone: str
    current: int
    target: int
    in_progress: int
    is_spot: bool
    is_autoscaled: bool
    preempted: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class Section:
    """A group of the list: its number of NodePools, and the lines that this page shows."""

    id: str
    title: str
    about: str
    count: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class PoolList:
    """The list.

    title, summary: whether NodePools lack Nodes, and the numbers behind that.
    counts: how many NodePools are in each group, without the filter.
    total: how many NodePools there are; cut: the page, of those that the filter lets through.
    current, wanted: how many Nodes all NodePools have, and want.
    """

    asked: Asked
    title: str
    summary: tuple[str, ...]
    counts: Mapping[Group, int]
    total: int
    current: int
    wanted: int
    sections: tuple[Section, ...]
    cut: Cut

    @property
    def needs_person(self) -> int:
        """How many NodePools need a person."""
        return self.counts[Group.PERSON]


def list_pools(lines: Sequence[Line], asked: Asked) -> PoolList:
    """Return the page of the list of these NodePools that an address asks for."""
    counts = Counter(line.standing.group for line in lines)
    has_filter = asked.state or asked.text
    shown = [line for line in lines if _matches(line, asked)] if has_filter else lines
    page = cut(len(shown), asked.page)
    return PoolList(
        asked,
        _title(lines),
        _summary(lines, counts),
        {group: counts[group] for group in Group},
        len(lines),
        sum(min(line.current, line.target) for line in lines),
        sum(line.target for line in lines),
        tuple(_sections(shown, asked, page.start, page.end)),
        page,
    )


def make_line(pool: Pool) -> Line:
    """Return a NodePool as a line of the list."""
    facts = pool.facts
    return Line(
        place=pool.place,
        instance_type=facts.instance_type,
        zone=pool.zone,
        current=facts.current,
        target=0 if facts.deleting else facts.target,
        in_progress=facts.in_progress,
        is_spot=facts.spot,
        is_autoscaled=facts.autoscaling,
        preempted=sum(node.preempted_since is not None for node in facts.nodes),
        standing=stand(pool),
    )


def _matches(line: Line, asked: Asked) -> bool:
    standing = line.standing
    if asked.state and standing.group != asked.state:
        return False
    if not asked.text:
        return True
    words = (
        *(line.place.cluster, line.place.name, line.instance_type, line.zone),
        *(standing.word.text, *(each.text for each in standing.also), standing.why),
        *("spot" if line.is_spot else "", "auto" if line.is_autoscaled else ""),
    )
    return has_words(asked.text, words)


def _sections(lines: Sequence[Line], asked: Asked, first: int, last: int) -> Iterator[Section]:
    """Yield the groups that have rows between two positions of the list."""
    groups: dict[tuple[int, str], list[Line]] = {}
    for line in lines:
        groups.setdefault(_group_of(line, asked.by), []).append(line)
    order: dict[str, Callable[[Line], tuple[object, ...]]] = {
        "missing": lambda line: (
            -line.standing.missing,
            -line.standing.unhealthy,
            not line.standing.also,
            line.place,
        ),
        "since": lambda line: (line.standing.since or _NEVER, line.place),
        "name": lambda line: (line.place.name, line.place.cluster),
    }
    start = 0
    for (rank, title), each in sorted(groups.items()):
        each.sort(key=order[asked.sort])
        shown = tuple(each[max(0, first - start) : max(0, last - start)])
        start += len(each)
        if shown:
            id = [*Group][rank].value if asked.by == "state" else title
            about = next((about for name, about in TITLES.values() if name == title), "")
            yield Section(id, title, about, len(each), shown)


def _group_of(line: Line, by: str) -> tuple[int, str]:
    if by == "cluster":
        return 0, line.place.cluster
    if by == "type":
        return 0, line.instance_type
    return _RANKS[line.standing.group], TITLES[line.standing.group][0]


def _title(lines: Sequence[Line]) -> str:
    """Return whether the NodePools have the Nodes that they want, as a title."""
    short = sum(line.current < line.target for line in lines)
    if not lines:
        return "No NodePools yet"
    if short:
        pools = "is" if len(lines) == 1 else "are"
        of = "The NodePool" if len(lines) == 1 else f"{short} of {len(lines)} NodePools"
        return f"{of} {'is' if short == 1 else pools} short of Nodes"
    persons = sum(line.standing.group is Group.PERSON for line in lines)
    if persons:
        of = "The NodePool" if len(lines) == 1 else f"{persons} of {len(lines)} NodePools"
        return f"{of} {'needs' if persons == 1 else 'need'} a person"
    trouble = sum(line.standing.group is not Group.WELL for line in lines)
    if trouble:
        verb = "is" if trouble == 1 else "are"
        return f"{trouble} of {len(lines)} NodePools {verb} not at target"
    return (
        "The NodePool is at target"
        if len(lines) == 1
        else f"All {len(lines)} NodePools are at target"
    )


def _summary(lines: Sequence[Line], counts: Mapping[Group, int]) -> tuple[str, ...]:
    verbs = {
        Group.PERSON: ("needs a person", "need a person"),
        Group.WAITS: ("waits", "wait"),
        Group.MOVES: ("is in progress", "are in progress"),
    }
    groups = [
        f"{counts[group]} {one if counts[group] == 1 else many}"
        for group, (one, many) in verbs.items()
        if counts[group]
    ]
    unhealthy = sum(line.standing.unhealthy for line in lines)
    verb = "is" if unhealthy == 1 else "are"
    return *groups, *((f"{format_count(unhealthy)} {verb} unhealthy",) if unhealthy else ())
