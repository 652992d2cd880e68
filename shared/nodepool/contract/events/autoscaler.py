"""What the autoscaler says: the target that would be right for a NodePool, and why."""

from typing import ClassVar

from nodepool.contract.events.kubernetes import KubernetesEvent
from nodepool.contract.messages import Event, OfPool


class NodePoolAutoscaled(KubernetesEvent):
    """Another target would be right for this generation of a NodePool.

    The validator makes a new generation of it, unless another change of the NodePool came before.

    uid: the NodePool's.
    generation: the one that the target is for.
    target: how many Nodes would be right, within the bounds of that generation.
    """

    speaker: ClassVar[str] = "autoscaler"

    uid: str
    generation: int
    target: int


class AutoscalingFailed(Event, OfPool):
    """The right target of a NodePool could not be determined; this is tried again later."""

    speaker: ClassVar[str] = "autoscaler"

    message: str
