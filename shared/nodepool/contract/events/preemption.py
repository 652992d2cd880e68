"""What the preemption service says while it takes a spot Node back.

The stages and their moments are those of
https://docs.coreweave.com/platform/capacity-plans/spot-node-pools.
"""

from datetime import datetime
from typing import ClassVar

from nodepool.contract.events.kubernetes import KubernetesEvent, Severity
from nodepool.contract.messages import Event, OfNode


class PreemptionPending(OfNode, KubernetesEvent):
    """A Node is chosen for preemption and cordoned, at minute 0, which is `since`."""

    speaker: ClassVar[str] = "preemption"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")
    reason: ClassVar[str] = "Preemption pending"

    since: datetime


class NodePreempted(Event, OfNode):
    """A Node that is booting, or is leaving already, is preempted without the timetable.

    Nothing runs on a booting Node, and it goes at once. One that is leaving is not kept any more,
    whatever happens, and no Pod delays it.
    """

    speaker: ClassVar[str] = "preemption"


class PreemptionInProgress(OfNode, KubernetesEvent):
    """The drain of a Node begins, at minute 2, which is `evicted_at`."""

    speaker: ClassVar[str] = "preemption"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")
    reason: ClassVar[str] = "Preemption in progress"

    evicted_at: datetime


class PreemptionFailed(Event, OfNode):
    """The next stage of a preemption could not be published; this is tried again later."""

    speaker: ClassVar[str] = "preemption"

    message: str


class DeletedForPreemption(KubernetesEvent):
    """A Node has left its cluster and its NodePool, drained or at minute 7."""

    speaker: ClassVar[str] = "preemption"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")
    reason: ClassVar[str] = "Deleted for preemption"
