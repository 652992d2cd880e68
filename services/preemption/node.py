"""A spot Node, and how far its preemption has come."""

from dataclasses import dataclass
from datetime import datetime

from nodepool.contract.keys import NodeKey, PoolKey, node_key, pool_path
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER
from preemption.figures import Cause


@dataclass(frozen=True, slots=True)
class Node:
    """A spot Node.

    pool: the NodePool that it belongs to.
    zone, name: its machine.
    assignment: which stay of the machine it is.
    booting: whether it has not joined its cluster yet.
    active: whether workloads run on it.
    request: the number of the request to delete it that it follows; 0 while it is to stay.
    goes_with_pool: whether it is to be deleted because its NodePool is.
    requested: why it is to be preempted; None where it is not.
    acknowledged: whether a command asked for its drain before that was due.
    pending_since: when its preemption began; None while it is not preempted.
    has_timetable: whether its preemption is announced and drains it after a while. One that boots,
        or leaves already, goes without.
    in_progress: whether its drain was announced, or is not to be.
    drained: whether the drain that was announced has begun.
    """

    pool: PoolKey
    zone: str
    name: str
    assignment: int
    booting: bool = False
    active: bool = False
    request: int = 0
    goes_with_pool: bool = False
    pending_since: datetime | None = None
    has_timetable: bool = False
    in_progress: bool = False
    drained: bool = False
    requested: Cause | None = None
    acknowledged: bool = False

    @property
    def is_going(self) -> bool:
        """Whether a preemption needs no timetable: the Node boots, or leaves and waits for no Pod.

        A Node whose NodePool is deleted leaves with that, whatever runs on the Node.
        """
        return self.booting or self.goes_with_pool or (self.request > 0 and not self.active)

    @property
    def is_stranded(self) -> bool:
        """Whether it needs a timetable after all, and was preempted without.

        It joined, was kept, or became active just when its preemption began.
        """
        return self.pending_since is not None and not (self.has_timetable or self.is_going)

    @property
    def is_to_begin(self) -> bool:
        """Whether its preemption was requested and has not begun."""
        return self.requested is not None and self.pending_since is None

    @property
    def may_be_acknowledged(self) -> bool:
        """Whether it is preempted, or is to be; the warning may not be published yet."""
        return self.is_to_begin or self.pending_since is not None

    @property
    def is_to_go_on(self) -> bool:
        """Whether the next stage is to be published now, whatever the timetable says."""
        is_asked_to_drain = self.acknowledged and self.due is not None
        return self.is_to_begin or self.is_stranded or is_asked_to_drain

    @property
    def key(self) -> NodeKey:
        """Its key in its cluster."""
        org, cluster, _ = pool_path(self.pool)
        return node_key(org, cluster, self.name)

    @property
    def due(self) -> datetime | None:
        """When its drain is due; None where it is not to be announced, or was already."""
        if self.pending_since is None or self.in_progress:
            return None
        return self.pending_since + DRAIN_AFTER

    def is_to_be_drained(self, now: datetime) -> bool:
        """Whether its drain is due; none is announced of one whose time is over."""
        if self.due is None or self.pending_since is None:
            return False
        is_due = self.acknowledged or self.due <= now
        return is_due and now < self.pending_since + GONE_AFTER
