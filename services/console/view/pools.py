"""The list of NodePools: filtered, grouped by who must act, and sorted."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from console.view.model import Place, Pool
from console.view.standing import TITLES, Group, Standing, stand

WELL_MAX: Final = 100
"""The most well NodePools that are shown, and the most of another grouping's group."""
GROUPINGS: Final = {"state": "State", "cluster": "Cluster", "type": "Type"}
SORTINGS: Final = {"missing": "Missing Nodes", "since": "Since", "name": "Name"}
FILTER_MAX: Final = 200
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address of the list asks for; anything unknown counts as the usual.

    text: words that a NodePool must have: in its name, type, zone, state or reason.
    """

    text: str = ""
    state: str = ""
    by: str = "state"
    sort: str = "missing"


def read_asked(query: Mapping[str, str]) -> Asked:
    """Return what an address asks for."""
    state, by, sort = (query.get(name, "") for name in ("state", "by", "sort"))
    return Asked(
        query.get("q", "").strip()[:FILTER_MAX],
        state if state in [*Group] else "",
        by if by in GROUPINGS else "state",
        sort if sort in SORTINGS else "missing",
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A NodePool in the list."""

    place: Place
    instance_type: str
    zone: str
    current: int
    target: int
    in_progress: int
    is_spot: bool
    is_autoscaled: bool
    standing: Standing


@dataclass(frozen=True, slots=True)
class Section:
    """A group of the list; `hidden` counts those that are not shown."""

    title: str
    about: str
    count: int
    lines: tuple[Line, ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class PoolList:
    """The list.

    title, summary: the answer, and the numbers behind it.
    counts: how many NodePools are in each group, whatever the filter.
    total: how many NodePools there are; shown: how many of them the filter lets through.
    current, wanted: how many Nodes all of them have, of those that they want.
    """

    asked: Asked
    title: str
    summary: tuple[str, ...]
    counts: Mapping[Group, int]
    total: int
    shown: int
    current: int
    wanted: int
    sections: tuple[Section, ...]

    @property
    def needs_person(self) -> int:
        """How many NodePools need a person."""
        return self.counts[Group.PERSON]

    @property
    def troubled(self) -> int:
        """How many NodePools are not well."""
        return self.total - self.counts[Group.WELL]


def list_pools(pools: Sequence[Pool], asked: Asked) -> PoolList:
    """Return the list of these NodePools that an address asks for."""
    lines = [_line(pool) for pool in pools]
    counts = Counter(line.standing.group for line in lines)
    shown = [line for line in lines if _matches(line, asked)]
    return PoolList(
        asked,
        _title(lines),
        _summary(lines, counts),
        {group: counts[group] for group in Group},
        len(lines),
        len(shown),
        sum(min(line.current, line.target) for line in lines),
        sum(line.target for line in lines),
        _sections(shown, asked),
    )


def _line(pool: Pool) -> Line:
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
        standing=stand(pool),
    )


def _matches(line: Line, asked: Asked) -> bool:
    standing = line.standing
    if asked.state and standing.group != asked.state:
        return False
    words = (
        *(line.place.cluster, line.place.name, line.instance_type, line.zone),
        *(standing.word.text, *(each.text for each in standing.also), standing.why),
        *("spot" if line.is_spot else "", "auto" if line.is_autoscaled else ""),
    )
    whole = " ".join(words).lower()
    return all(part in whole for part in asked.text.lower().split())


def _sections(lines: Sequence[Line], asked: Asked) -> tuple[Section, ...]:
    groups: dict[tuple[int, str], list[Line]] = {}
    for line in lines:
        groups.setdefault(_group_of(line, asked.by), []).append(line)
    order: dict[str, Callable[[Line], tuple[object, ...]]] = {
        "missing": lambda line: (-line.standing.missing, line.place),
        "since": lambda line: (line.standing.since or _NEVER, line.place),
        "name": lambda line: (line.place.name, line.place.cluster),
    }
    found = list[Section]()
    for (rank, title), each in sorted(groups.items()):
        each.sort(key=order[asked.sort])
        is_cut = asked.by != "state" or rank == list(Group).index(Group.WELL)
        lines_shown = each[:WELL_MAX] if is_cut else each
        about = next((about for name, about in TITLES.values() if name == title), "")
        hidden = len(each) - len(lines_shown)
        found.append(Section(title, about, len(each), tuple(lines_shown), hidden))
    return tuple(found)


def _group_of(line: Line, by: str) -> tuple[int, str]:
    if by == "cluster":
        return 0, line.place.cluster
    if by == "type":
        return 0, line.instance_type
    return list(Group).index(line.standing.group), TITLES[line.standing.group][0]


def _title(lines: Sequence[Line]) -> str:
    """Return the answer to whether the NodePools have what they want."""
    short = sum(line.current < line.target for line in lines)
    if not lines:
        return "No NodePools yet"
    if short:
        pools = "is" if len(lines) == 1 else "are"
        of = "The NodePool" if len(lines) == 1 else f"{short} of {len(lines)} NodePools"
        return f"{of} {'is' if short == 1 else pools} short of Nodes"
    trouble = sum(line.standing.group is not Group.WELL for line in lines)
    if trouble:
        verb = "is" if trouble == 1 else "are"
        return f"{trouble} of {len(lines)} NodePools {verb} not at target"
    return "The NodePool is at target" if len(lines) == 1 else f"All {len(lines)} are at target"


def _summary(lines: Sequence[Line], counts: Mapping[Group, int]) -> tuple[str, ...]:
    verbs = {
        Group.PERSON: ("needs a person", "need a person"),
        Group.WAITS: ("waits", "wait"),
        Group.MOVES: ("moves", "move"),
    }
    return tuple(
        f"{counts[group]} {one if counts[group] == 1 else many}"
        for group, (one, many) in verbs.items()
        if counts[group]
    )
