"""The facts of the read model about one Node of a NodePool."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nodepool.contract.cordons import is_for_reboot, split_causes
from nodepool.contract.health import cordon_cause
from nodepool.contract.node_failures import RESERVATION_PENDING
from nodepool.contract.phases import RESTARTING

NOT_READY: Final = cordon_cause("Ready")
"""The problem of a Node whose machine does not answer."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A Node of the NodePool.

    position: the log position of its last change.
    created: when it was assigned; None if unknown, like every other moment here.
    registered: whether it has joined its cluster.
    phase, reboots: its phase, such as `production` or `cordoned`, and how often it was rebooted.
    active, active_since, idle_since, work: whether anything runs on it, since when, and what runs.
    blocking, blocking_count: the first Pods that a drain waits for, since when, and how many.
    removal, removal_since: why it must leave, and since when; empty for a Node that stays.
    asked_since, warned: since when it is to give way, until it is marked; whether it was warned.
    preempted_since: when its preemption was announced; None if it is not preempted.
    forced: whether it is drained, and the drain waits for no Pod.
    progressed: when the lifecycle service last said anything about it while it leaves.
    answer_by: when its machine is treated as dead unless it answers; None if that is not decided.
    silence_due: when the lifecycle service has to say next what follows from its silence.
    problems, problems_since: what makes it unhealthy, as its cordon names it, and since when.
    cordon: why it is cordoned, as its annotation says; empty if it is not cordoned.
    cordoned_since: since when it is cordoned for that and answers; None if that is not known.
    relapsed: whether a problem came back so soon after a reboot that a reboot does not cure it.
    reserved: whether it is reserved for the control plane, so that the NodePool cannot use it.
    domain: its NVLink domain; empty if it has none.
    """

    name: str
    position: int = 0
    created: datetime | None = None
    registered: bool = True
    phase: str = "production"
    reboots: int = 0
    active: bool = False
    active_since: datetime | None = None
    idle_since: datetime | None = None
    work: str = ""
    blocking: tuple[tuple[str, datetime | None], ...] = ()
    blocking_count: int = 0
    removal: str = ""
    removal_since: datetime | None = None
    asked_since: datetime | None = None
    warned: bool = False
    preempted_since: datetime | None = None
    forced: bool = False
    progressed: datetime | None = None
    answer_by: datetime | None = None
    silence_due: datetime | None = None
    problems: tuple[str, ...] = ()
    problems_since: datetime | None = None
    cordon: str = ""
    cordoned_since: datetime | None = None
    relapsed: bool = False
    reserved: bool = False
    domain: str = ""

    @property
    def is_warned(self) -> bool:
        """Return whether its preemption was announced, and asks no Pod to end yet.

        An earlier drain may still wait for its Pods; the drain of a preemption waits for none.
        """
        return self.preempted_since is not None and not self.forced

    @property
    def is_silent(self) -> bool:
        """Return whether nothing can be ended there: its machine neither answers nor reboots."""
        return NOT_READY in self.problems and self.phase != "rebooting"

    @property
    def is_excused(self) -> bool:
        """Return whether its silence is short or widespread, so that no cordon names it yet."""
        return self.is_silent and NOT_READY not in self.cordon

    @property
    def restarts(self) -> bool:
        """Return whether it restarts, or is idle and does so once its machine has answered."""
        is_next = self.goes_on and is_for_reboot(split_causes(self.cordon))
        return is_next or self.phase in RESTARTING

    @property
    def is_pending(self) -> bool:
        """Return whether it is cordoned until it is reserved for another user."""
        return RESERVATION_PENDING in split_causes(self.cordon)

    @property
    def goes_on(self) -> bool:
        """Return whether it is idle, and reboots or is reserved once its machine has answered."""
        is_idle = self.phase == "cordoned" and not self.active and self.answer_by is None
        return is_idle and (self.is_pending or is_for_reboot(split_causes(self.cordon)))

    @property
    def goes_on_since(self) -> datetime | None:
        """Return since when it should go on, or have a time to answer; None if that is not known.

        A Node that does not answer may have answered its cordon before, and does not go on.
        """
        if not self.goes_on or self.is_silent or self.cordoned_since is None:
            return None
        return max(self.cordoned_since, self.idle_since or self.cordoned_since)
