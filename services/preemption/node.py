"""A spot Node, and the progress of its preemption."""

from dataclasses import dataclass
from datetime import datetime

from nodepool.contract.keys import NodeKey, PoolKey, node_key, pool_path
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER
from preemption.figures import Cause


@dataclass(frozen=True, slots=True)
class Node:
    """A spot Node.

    pool: the NodePool of the Node.
    zone, name: the machine of the Node.
    assignment: the number of the stay of the machine.
    booting: whether the Node has not joined its cluster yet.
    active: whether workloads run on the Node.
    request: the number of the request to delete the Node; 0 while the Node stays.
    goes_with_pool: whether the NodePool is being deleted, and its Nodes with it.
    requested: why the Node must be preempted; None without such a request.
    acknowledged: whether a command requested the drain before it was due.
    pending_since: when the preemption began; None before.
    has_timetable: whether the preemption is announced some time before its drain. A Node that
        boots, or that leaves already, has no timetable.
    in_progress: whether the drain was announced, or needs no announcement.
    drained: whether the announced drain has begun.
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

        A Node leaves with its deleted NodePool even if workloads run on the Node.
        """
        return self.booting or self.goes_with_pool or (self.request > 0 and not self.active)

    @property
    def is_stranded(self) -> bool:
        """Whether the Node was preempted without a timetable, but needs a timetable after all.

        `NodePreempted` gave no warning because the Node booted or left without work; but it joined,
        was kept, or became active all the same. `PreemptionPending` now warns its work.
        """
        return self.pending_since is not None and not (self.has_timetable or self.is_going)

    @property
    def is_to_begin(self) -> bool:
        """Return whether a preemption of the Node was requested and has not begun."""
        return self.requested is not None and self.pending_since is None

    @property
    def may_be_acknowledged(self) -> bool:
        """Return whether the Node is or will be preempted; the warning may not be published yet."""
        return self.is_to_begin or self.pending_since is not None

    @property
    def is_to_go_on(self) -> bool:
        """Return whether the next stage must be published now, regardless of the timetable."""
        is_asked_to_drain = self.acknowledged and self.due is not None
        return self.is_to_begin or self.is_stranded or is_asked_to_drain

    @property
    def key(self) -> NodeKey:
        """The key of the Node in its cluster."""
        org, cluster, _ = pool_path(self.pool)
        return node_key(org, cluster, self.name)

    @property
    def due(self) -> datetime | None:
        """When the drain is due; None if it was announced already, or needs no announcement."""
        if self.pending_since is None or self.in_progress:
            return None
        return self.pending_since + DRAIN_AFTER

    def is_to_be_drained(self, now: datetime) -> bool:
        """Return whether its drain is due; none is announced of one whose time is over."""
        if self.due is None or self.pending_since is None:
            return False
        is_due = self.acknowledged or self.due <= now
        return is_due and now < self.pending_since + GONE_AFTER
