"""The figures about NodePools since the log began, and since when each waits to be at its target.

A wait begins when the NodePool has fewer or more Nodes than its target, because the target changed
or a Node was lost. It ends when the number of Nodes equals the target. Another change of the target
in the same direction does not begin a new wait. If a change of the target ends the wait, the wait
does not count, because nothing was delivered.

* A NodePool whose target is above its quota waits for its customer: no time counts until the quota
  is sufficient. A lack of machines does count: this metric exists to show it.
* A NodePool that is invalid, or is being deleted, has no target to reach.
* A target of the autoscaler counts like a target of a command.

There are at most 21 series of transitions, and 15 series of how long a status lasted, for any
number of NodePools. Each offering has four histograms of time to target, by class and direction.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from immutables import Map

from aggregator.objects import NodePoolObject
from nodepool.contract.conditions import AtTarget, Condition, Validated
from nodepool.contract.keys import PoolKey
from nodepool.contract.metrics import CONDITION_DURATION, TIME_TO_TARGET
from nodepool.state.tallies import Counters, Histograms
from nodepool.state.values import replace

DIRECTIONS: Final = ("down", "up")
"""The directions of a wait: for Nodes to leave, or to come."""


class Wait(NamedTuple):
    """Since when a NodePool waits for Nodes to come, `up`, or to leave, `down`."""

    since: datetime
    direction: str


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The figures about NodePools, each with the name of its metric.

    waits: since when each NodePool waits to be at its target; only NodePools that wait.
    """

    transitions: Counters = Counters()
    durations: Histograms = Histograms()
    time_to_target: Histograms = Histograms()
    waits: Map[PoolKey, Wait] = Map()

    def update_pool(
        self, before: NodePoolObject | None, after: NodePoolObject, now: datetime
    ) -> "PoolFigures":
        """Return the figures after a NodePool changed; `before` is None for a new NodePool."""
        if before is not None and after.conditions is before.conditions:
            return self
        known = self.waits.get(after.key)
        wait = _wait_after(known, after, now)
        transitions, durations = self._with_transitions(before, after, now)
        times = self.time_to_target
        if before is not None and known is not None and _is_delivered(before, after):
            seconds = (now - known.since).total_seconds()
            labels = after.zone, after.spec.instance_type, after.spec.compute_class.value
            times = times.observe(TIME_TO_TARGET, seconds, *labels, known.direction)
        waits = self.waits if wait is known else _with_wait(self.waits, after.key, wait)
        return PoolFigures(transitions, durations, times, waits)

    def _with_transitions(
        self, before: NodePoolObject | None, after: NodePoolObject, now: datetime
    ) -> tuple[Counters, Histograms]:
        transitions, durations = self.transitions, self.durations
        is_same = before is not None and before.uid == after.uid
        known = before.conditions if before is not None and is_same else Map[str, Condition]()
        for kind, condition in after.conditions.items():
            old = known.get(kind)
            if old is not None and old.status == condition.status:
                continue
            transitions = transitions.add(kind, condition.status, condition.reason)
            if old is not None:
                seconds = (now - old.since).total_seconds()
                durations = durations.observe(CONDITION_DURATION, seconds, kind, old.status)
        return transitions, durations

    def remove_pool(self, key: PoolKey) -> "PoolFigures":
        """Return the figures without this NodePool."""
        return replace(self, waits=_with_wait(self.waits, key, None))


def _with_wait(waits: Map[PoolKey, Wait], key: PoolKey, wait: Wait | None) -> Map[PoolKey, Wait]:
    if wait is not None:
        return waits.set(key, wait)
    return waits.delete(key) if key in waits else waits


def _wait_after(known: Wait | None, after: NodePoolObject, now: datetime) -> Wait | None:
    """Return the wait of a changed NodePool; None if the NodePool waits for nothing that counts."""
    direction = _direction(after)
    if direction == "":
        return None
    is_same = known is not None and known.direction == direction
    return known if is_same else Wait(now, direction)


def _is_delivered(before: NodePoolObject, after: NodePoolObject) -> bool:
    """Return whether the awaited Nodes have come or left."""
    is_there = after.at_target is AtTarget.TARGET_MET
    return is_there and before.spec.target == after.spec.target


def _direction(pool: NodePoolObject) -> str:
    """Return `up` if a NodePool waits for Nodes to come, `down` to leave; empty for neither."""
    validated, quota = pool.conditions.get("Validated"), pool.conditions.get("Quota")
    if validated is None or validated.reason != Validated.VALID:
        return ""
    match pool.at_target:
        case AtTarget.OVER_TARGET:
            return "down"
        case AtTarget.UNDER_TARGET:
            return "" if quota is not None and quota.status == "False" else "up"
        case _:
            return ""
