"""The figures about Nodes since the log began, and the Nodes that cannot be used now.

A registered Node cannot be used while there is a cause for its cordon, which may be its rack, while
it is rebooted or verified, and from the beginning of its preemption. Each second counts once, for
the first cause. Later causes count nothing until the Node can be used again, or is deleted.

The number of series is bounded. Each NodePool has up to 13 series for the causes of cordons, and
up to 2 for the stages of preemptions; a cause or a stage without a Node has no series. Each
offering has 16 causes of failures, 15 causes of lost seconds, 4 reasons of removals, and one
histogram of joins.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from immutables import Map

from aggregator.objects import NodeObject
from nodepool.contract.keys import NodeKey, pool_path
from nodepool.contract.metrics import NODE_JOIN, REMOVED_NODE_AGE
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.state.tallies import Counters, Histograms, Labels, Levels
from nodepool.state.values import replace
from nodepool.usage.uses import cause_of


class Unusable(NamedTuple):
    """A Node that cannot be used.

    since: since when the Node cannot be used.
    cause: the first cause.
    cordon: the first cause of its cordon now; empty while the Node is not cordoned.
    stage: the stage of its preemption, `pending` or `drain`; empty if it is not preempted.
    """

    since: datetime
    cause: str
    cordon: str
    stage: str


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The figures about Nodes, each with the name of its metric.

    unusable: the Nodes that cannot be used now.
    unhealthy: how many of these Nodes each NodePool has, by the cause of their cordon.
    preempting: how many of these Nodes each NodePool has, by the stage of their preemption.
    active: how many registered Nodes of each NodePool run a workload.
    """

    joins: Histograms = Histograms()
    failures: Counters = Counters()
    removals: Counters = Counters()
    ages: Histograms = Histograms()
    lost_seconds: Counters = Counters()
    unusable: Map[NodeKey, Unusable] = Map()
    unhealthy: Levels = Levels()
    preempting: Levels = Levels()
    active: Levels = Levels()

    def with_activity(self, before: NodeObject, after: NodeObject | None) -> "NodeFigures":
        """Return the figures after the activity of a Node may have changed; None if it left."""
        active = self.active.move(_active_of(before), _active_of(after))
        return self if active is self.active else replace(self, active=active)

    def with_usability(
        self, key: NodeKey, node: NodeObject, now: datetime, cordon: str | None = None
    ) -> "NodeFigures":
        """Return the figures after it may have changed whether a Node can be used.

        cordon: the first cause for which the Node is cordoned from now on; None if unchanged.
        """
        before = self.unusable.get(key)
        held = before.cordon if before is not None else ""
        after = _unusable(before, node, held if cordon is None else cordon, now)
        return self if after == before else self._move_unusable(key, node, before, after, now)

    def count_failure(self, node: NodeObject, cause: str) -> "NodeFigures":
        """Return the figures with one more failure of a Node."""
        return replace(self, failures=self.failures.add(node.zone, node.instance_type, cause))

    def count_join(self, node: NodeObject, now: datetime) -> "NodeFigures":
        """Return the figures after a Node joined its cluster."""
        seconds = (now - node.created).total_seconds()
        joins = self.joins.observe(NODE_JOIN, seconds, node.zone, node.instance_type)
        return replace(self, joins=joins)

    def remove_node(self, key: NodeKey, node: NodeObject, now: datetime) -> "NodeFigures":
        """Return the figures without a Node that left."""
        before = self.unusable.get(key)
        figures = self if before is None else self._move_unusable(key, node, before, None, now)
        return figures.with_activity(node, None)

    def count_removal(self, node: NodeObject, reason: str, now: datetime) -> "NodeFigures":
        """Return the figures with one more removal of a Node, and its age."""
        age = (now - node.created).total_seconds()
        return replace(
            self,
            removals=self.removals.add(node.zone, node.instance_type, reason),
            ages=self.ages.observe(REMOVED_NODE_AGE, age, reason),
        )

    def _move_unusable(
        self,
        key: NodeKey,
        node: NodeObject,
        before: Unusable | None,
        after: Unusable | None,
        now: datetime,
    ) -> "NodeFigures":
        path, lost, known = pool_path(node.pool), self.lost_seconds, self.unusable
        if before is not None and after is None:
            seconds = (now - before.since).total_seconds()
            lost = lost.add(node.zone, node.instance_type, before.cause, by=seconds)
        return replace(
            self,
            lost_seconds=lost,
            unusable=known.delete(key) if after is None else known.set(key, after),
            unhealthy=self.unhealthy.move(_unhealthy_of(before, path), _unhealthy_of(after, path)),
            preempting=self.preempting.move(
                _preempting_of(before, path), _preempting_of(after, path)
            ),
        )


def _unusable(
    known: Unusable | None, node: NodeObject, cordon: str, now: datetime
) -> Unusable | None:
    """Return since when and why a Node cannot be used; None if the Node can be used.

    cordon: the cause for which the Node is cordoned now; empty if it is not cordoned.
    """
    if not node.is_registered:
        return None
    cause = cause_of(cordon, node.removal, node.phase)
    if not cause:
        return None
    since, first = (known.since, known.cause) if known else (now, cause)
    return Unusable(since, first, cordon, _stage(node))


def _stage(node: NodeObject) -> str:
    if node.removal is not RemovalReason.PREEMPTED:
        return ""
    return "drain" if node.phase is NodePhase.DRAINING else "pending"


def _unhealthy_of(item: Unusable | None, path: Labels) -> Labels | None:
    """Return the labels that count a Node of this NodePool as unhealthy; None if it is not."""
    return (*path, item.cordon) if item is not None and item.cordon else None


def _preempting_of(item: Unusable | None, path: Labels) -> Labels | None:
    """Return the labels that count a Node as being preempted; None if it is not preempted."""
    return (*path, item.stage) if item is not None and item.stage else None


def _active_of(node: NodeObject | None) -> Labels | None:
    """Return the labels of the NodePool of an active Node; None for any other Node.

    A Node that is reserved for the control plane is neither active nor idle for its NodePool.
    """
    is_active = node is not None and node.active and node.usable and node.is_registered
    return pool_path(node.pool) if node is not None and is_active else None
