"""The figures about Nodes since the log began, and the Nodes that cannot be used now.

The number of series is bounded. Each NodePool has up to 13 series for the causes of cordons, and
up to 2 for the stages of preemptions; a cause or a stage without a Node has no series. Each
offering has 16 causes of failures, 15 causes of lost seconds, 5 reasons of removals, and one
histogram of joins.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from immutables import Map

from aggregator import NodeLeft
from aggregator.objects import NodeObject
from aggregator.usability import Unusable, preempting_of, unhealthy_of, unusable
from nodepool.contract.events import CWNodeDeleted
from nodepool.contract.keys import NodeKey, pool_path
from nodepool.contract.metrics import REMOVED_NODE_AGE
from nodepool.state.tallies import Counters, Histograms, Levels


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The figures about Nodes, each with the name of its metric.

    unusable: the Nodes that cannot be used now.
    unhealthy: how many of these Nodes each NodePool has, by the cause of their cordon.
    preempting: how many of these Nodes each NodePool has, by the stage of their preemption.
    active: how many registered Nodes of each NodePool run a workload.
    """

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
        active = self.active.moved(_active_of(before), _active_of(after))
        return self if active is self.active else replace(self, active=active)

    def changed(
        self, key: NodeKey, node: NodeObject, now: datetime, cordon: str | None = None
    ) -> "NodeFigures":
        """Return the figures after a Node changed.

        cordon: the cause for which the Node itself is cordoned from now on; None if unchanged.
        """
        before = self.unusable.get(key)
        held = before.cordon if before is not None else ""
        after = unusable(before, node, held if cordon is None else cordon, now)
        return self if after == before else self._moved(key, node, before, after, now)

    def failed(self, node: NodeObject, cause: str) -> "NodeFigures":
        """Return the figures with one more failure of a Node."""
        return replace(self, failures=self.failures.add(node.zone, node.instance_type, cause))

    def left(
        self, key: NodeKey, node: NodeObject, event: NodeLeft, failure: str, now: datetime
    ) -> "NodeFigures":
        """Return the figures without a Node, which left for this failure; empty for no failure."""
        before = self.unusable.get(key)
        figures = self if before is None else self._moved(key, node, before, None, now)
        figures = figures.with_activity(node, None)
        figures = figures.failed(node, failure) if failure else figures
        if not isinstance(event, CWNodeDeleted):
            return figures
        reason = event.removal.value
        age = (now - node.created).total_seconds()
        return replace(
            figures,
            removals=figures.removals.add(node.zone, node.instance_type, reason),
            ages=figures.ages.observe(REMOVED_NODE_AGE, age, reason),
        )

    def _moved(
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
            unhealthy=self.unhealthy.moved(unhealthy_of(before, path), unhealthy_of(after, path)),
            preempting=self.preempting.moved(
                preempting_of(before, path), preempting_of(after, path)
            ),
        )


def _active_of(node: NodeObject | None) -> tuple[str, ...] | None:
    """Return the labels of the NodePool of an active Node; None for any other Node.

    A Node that is reserved for the control plane is neither active nor idle for its NodePool.
    """
    is_active = node is not None and node.active and node.usable and node.registered is not None
    return pool_path(node.pool) if node is not None and is_active else None
