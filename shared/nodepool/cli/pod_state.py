"""The state of one Pod in the log, as far as it affects the program that runs as this Pod."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodepool.client.pods import PodEvent
from nodepool.contract.events import PodChanged
from nodepool.contract.events.fleet import PodPhase


@dataclass(frozen=True, slots=True)
class PodState:
    """The state of a Pod, beginning before its creation.

    earlier: the number of the previous Pod with the same name; events about Pods up to this number
        are ignored.
    pod: the newest event about the Pod; None until the Pod is created.
    terminating_since: when its grace period began; None if it never began.
    left: how much of its grace period was left when the Pod was gone.
    is_preempted: whether its Node is being preempted.
    """

    earlier: int = 0
    pod: PodChanged | None = None
    terminating_since: datetime | None = None
    left: timedelta = timedelta()
    is_preempted: bool = False

    @property
    def phase(self) -> PodPhase | None:
        """The phase of the Pod; None before the Pod was created."""
        return self.pod.phase if self.pod is not None else None

    @property
    def ends(self) -> bool:
        """Return whether the program of the Pod has to end."""
        return self.phase in ("Terminating", "Gone")

    @property
    def grace_s(self) -> float:
        """How long the program has from SIGTERM to SIGKILL, in seconds, if it has to end.

        The program has as long as the Pod had, even if the end of the Pod is noticed late.
        """
        if self.pod is None:
            return 0.0
        return self.left.total_seconds() if self.phase == "Gone" else float(self.pod.grace_s)

    @property
    def is_taken(self) -> bool:
        """Return whether the Pod was taken from its Node, or is about to be."""
        return self.ends or self.is_preempted

    @property
    def why(self) -> str:
        """Return why the Pod was taken from its Node, as a clause."""
        if self.ends and self.pod is not None and not self.is_preempted:
            return self.pod.message or "it has ended"
        return "its Node is being preempted"

    def next(self) -> "PodState":
        """Return the state of another Pod of the same name, which is not yet created."""
        return PodState(self.pod.number if self.pod is not None else self.earlier)

    def after(self, item: PodEvent) -> "PodState":
        """Return the state after an event about a Pod of the name or a Node of its NodePool."""
        event, pod = item.event, self.pod
        if not isinstance(event, PodChanged):
            place = (event.node, event.assignment)
            own = pod is not None and (pod.node, pod.assignment) == place
            return replace(self, is_preempted=True) if own else self
        if event.number <= self.earlier or (pod is not None and event.number != pod.number):
            return self
        since = self.terminating_since
        if event.phase == "Terminating":
            return replace(self, pod=event, terminating_since=since or item.time)
        if event.phase == "Gone" and since is not None:
            return replace(self, pod=event, left=item.time - since)
        return replace(self, pod=event)
