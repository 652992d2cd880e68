"""What an agent says: what is observed of the Nodes and Pods of a Kubernetes cluster."""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from nodepool.contract.conditions import ConditionStatus
from nodepool.contract.messages import Event, OfNode, OfPool
from nodepool.contract.pods import Pod, WaitingPods

SHAPES_MAX: Final = 128
"""The most shapes of Pods that a report tells apart; of more, those that ask for least wait."""


class NodeReported(Event, OfNode):
    """A Node as it is found in its cluster of Kubernetes; said when anything of it changes.

    The first one in a stay says that the Node has joined its cluster and is ready.

    unschedulable, cordon, pods, lock: as in `NodeObserved`.
    """

    speaker: ClassVar[str] = "agent"

    unschedulable: bool
    cordon: int = 0
    pods: tuple[Pod, ...] = ()
    lock: int = 0


class NodeConditionReported(Event, OfNode):
    """A condition of a Node in its cluster of Kubernetes changed.

    type, status, reason, message: those of the condition.
    request: as in `NodeConditionChanged`.
    """

    speaker: ClassVar[str] = "agent"

    type: Annotated[str, Field(max_length=316)]
    status: ConditionStatus
    reason: str
    message: str
    request: int = 0


class PodsWaitingReported(Event, OfPool):
    """The Pods of a Kubernetes cluster that wait, and that an empty Node of a NodePool would take.

    It replaces what was reported of the NodePool before. A Pod that several NodePools could take
    is reported of one of them. It is said of a NodePool that is autoscaled when anything of it
    changes, and of each generation of it at least once.

    uid, generation: those of the NodePool.
    waiting: how many of each shape there are; those that ask for most come first.
    """

    speaker: ClassVar[str] = "agent"

    uid: str
    generation: int
    waiting: Annotated[tuple[WaitingPods, ...], Field(max_length=SHAPES_MAX)] = ()
