"""How the time of all Nodes was used since the month began, in UTC by the clock of the log.

No time of a Node is kept: a use that `nodes` Nodes have gains `nodes` microseconds in each. So a
change of a Node moves one Node, and the moment of that, from a level to another.

The number of series is bounded: each organisation and instance type with Nodes in this month has up
to five levels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from immutables import Map

from aggregator.figures.nodes import Unusable
from aggregator.objects import NodeObject
from nodepool.contract import metrics
from nodepool.contract.keys import pool_path
from nodepool.contract.metrics import Sample
from nodepool.state.tallies import Labels
from nodepool.usage.uses import Use, use_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = 1_000_000


class Level(NamedTuple):
    """The Nodes of a use, and their time.

    nodes: how many there are now.
    offset: with `nodes` times the microseconds since 1970, the microseconds of this month.
    """

    nodes: int = 0
    offset: int = 0

    def micros(self, at: int) -> int:
        """Return the time of all Nodes at a moment, in microseconds."""
        return self.nodes * at + self.offset


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """The time of Nodes by organisation, instance type and use.

    at: when a Node has last changed, in microseconds since 1970; it never goes back.
    month: when the month of that moment began.
    """

    at: int = 0
    month: int = 0
    levels: Map[Labels, Level] = Map()

    def move(self, before: Labels | None, after: Labels | None, time: datetime) -> "UsageFigures":
        """Return the figures after a Node has another use; None stands for no Node."""
        if before == after:
            return self
        at = max(self.at, (time - _EPOCH) // _MICROSECOND)
        month = _month_of(at)
        levels = self.levels if month == self.month else _begin_month(self.levels, month)
        if before is not None:
            level = levels[before]
            levels = levels.set(before, Level(level.nodes - 1, level.offset + at))
        if after is not None:
            level = levels.get(after, Level())
            levels = levels.set(after, Level(level.nodes + 1, level.offset - at))
        return UsageFigures(at, month, levels)

    def samples(self) -> Iterator[Sample]:
        """Yield the Nodes and the seconds of each use, and when that was so."""
        for labels, level in sorted(self.levels.items()):
            yield Sample(metrics.NODES_BY_USE, labels, level.nodes)
            yield Sample(metrics.NODE_USE_SECONDS, labels, level.micros(self.at) / _SECOND)
        if self.at:
            yield Sample(metrics.NODE_USE_TIME, (), self.at / _SECOND)


def find_use(node: NodeObject | None, unusable: Unusable | None) -> Use | None:
    """Return what a Node is used for; None for no Node."""
    if node is None:
        return None
    return use_of(
        is_registered=node.is_registered,
        is_usable=node.usable,
        is_active=node.active,
        phase=node.phase,
        is_lost=unusable is not None,
    )


def labels_of(node: NodeObject | None, use: Use | None) -> Labels | None:
    """Return where the time of a Node counts; None for no Node."""
    if node is None or use is None:
        return None
    org, _, _ = pool_path(node.pool)
    return org, node.instance_type, use.value


def _begin_month(levels: Map[Labels, Level], month: int) -> Map[Labels, Level]:
    """Return the levels at the begin of a month: without time, and without uses of no Node."""
    return Map(
        {
            labels: Level(level.nodes, -level.nodes * month)
            for labels, level in levels.items()
            if level.nodes
        }
    )


def _month_of(at: int) -> int:
    time = _EPOCH + at * _MICROSECOND
    return (time.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - _EPOCH) // _MICROSECOND
