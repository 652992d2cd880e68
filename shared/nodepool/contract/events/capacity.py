"""What the capacity service says: Capacity of NodePools, and what the Capacity Finder has found."""

from datetime import datetime
from typing import ClassVar

from nodepool.contract.availability import CapacitySelection, ZoneAvailability
from nodepool.contract.conditions import Capacity
from nodepool.contract.events.kubernetes import KubernetesEvent, Severity
from nodepool.contract.messages import Event, OfOrg, OfPool


class CapacityChecked(Event, OfPool):
    """Whether there are as many machines as a NodePool still wants.

    uid, generation, granted: the NodePool and its grant as they were checked.
    reason: the reason of the condition Capacity.
    wanted: how many Nodes it still wants.
    available: how many of them it could have now.
    since: since when it waits; NodePools are served in this order.
    message: the message of the condition.
    preempted: how many spot Nodes are being preempted for it.
    position: the position of the first Node that it lacks among all Nodes that wait for machines of
        the type in the zone; 0 where there are machines enough.
    needed: how many more machines have to become free until it has every Node that it lacks: those
        for it and for what is served before, an operator included; 0 where there are enough.
    """

    speaker: ClassVar[str] = "capacity"

    uid: str
    generation: int
    granted: int
    reason: Capacity
    wanted: int
    available: int
    since: datetime
    message: str
    preempted: int = 0
    position: int = 0
    needed: int = 0


class CapacityCheckFailed(Event, OfPool):
    """The capacity for a NodePool could not be checked: Capacity is InternalError.

    uid: the NodePool's.
    """

    speaker: ClassVar[str] = "capacity"

    message: str
    uid: str


class CWInsufficientCapacity(KubernetesEvent):
    """There are fewer machines than a NodePool wants."""

    speaker: ClassVar[str] = "capacity"
    severity: ClassVar[Severity] = "Warning"


class CapacityFound(Event, OfOrg):
    """Which zones are likely to have what `FindCapacity` asked for, when it was processed.

    It is informational and reserves nothing.

    selections: what was asked for.
    zones: every General Access zone, the best first.
    """

    speaker: ClassVar[str] = "capacity"

    selections: tuple[CapacitySelection, ...]
    zones: tuple[ZoneAvailability, ...]
