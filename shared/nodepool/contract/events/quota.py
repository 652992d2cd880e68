"""What the quota service says: limits, how many Nodes each NodePool is granted, Quota."""

from typing import ClassVar

from nodepool.contract.conditions import Quota
from nodepool.contract.events.kubernetes import KubernetesEvent, Severity
from nodepool.contract.messages import Event, OfOrg, OfPool


class QuotaSet(Event, OfOrg):
    """An organisation's limit for an instance type in a zone.

    limit: the most Nodes from now on.
    granted: how many Nodes count against it already.
    """

    speaker: ClassVar[str] = "quota"

    zone: str
    instance_type: str
    limit: int
    granted: int


class QuotaDeleted(Event, OfOrg):
    """An organisation has no limit for an instance type in a zone any more.

    granted: how many Nodes would count against one.
    """

    speaker: ClassVar[str] = "quota"

    zone: str
    instance_type: str
    granted: int


class QuotaChecked(Event, OfPool):
    """How many Nodes a NodePool may have.

    generation, uid: the NodePool as it was checked.
    reason: the reason of the condition Quota.
    granted: how many Nodes it may have.
    number: the number of this grant; the next verdict that grants another number of Nodes has the
        next one. 0 in a log from before grants were numbered.
    zone, instance_type, limit: the limit that applies; no number where none was set.
    used: how many Nodes of all NodePools count against the limit.
    message: the message of the condition.
    beyond: how many Nodes the NodePool has beyond its grant because the control plane gave these
        Nodes back. The NodePool scales down to its grant, or to its target if the reason is Under.
    """

    speaker: ClassVar[str] = "quota"

    generation: int
    reason: Quota
    uid: str
    granted: int
    zone: str
    instance_type: str
    limit: int | None = None
    used: int
    message: str
    number: int = 0
    beyond: int = 0


class QuotaCheckFailed(Event, OfPool):
    """The quota of a NodePool could not be checked; said each time that it is tried.

    message: why, as the condition has it.
    """

    speaker: ClassVar[str] = "quota"

    message: str


class QuotaReleased(Event, OfPool):
    """A NodePool gave back what it does not hold any more.

    granted: how many of its Nodes still count against the limit.
    zone, instance_type: the limit that applies.
    used: how many Nodes of all NodePools count against it.
    """

    speaker: ClassVar[str] = "quota"

    granted: int
    zone: str
    instance_type: str
    used: int


class CWOverQuota(KubernetesEvent):
    """The limit is too small for the `targetNodes` of a NodePool."""

    speaker: ClassVar[str] = "quota"
    severity: ClassVar[Severity] = "Warning"


class CWNodePoolQuotaCheckFailed(KubernetesEvent):
    """The quota of a NodePool could not be checked: Quota is InternalError.

    Not said again where it fails once more for the same reason.

    uid: the NodePool's.
    """

    speaker: ClassVar[str] = "quota"
    severity: ClassVar[Severity] = "Warning"

    uid: str
