"""What an agent says: what is observed of the Nodes of a Kubernetes cluster."""

from typing import Annotated, ClassVar

from pydantic import Field

from nodepool.contract.messages import Event, OfNode
from nodepool.contract.model import ConditionStatus
from nodepool.contract.pods import Pod


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
    """

    speaker: ClassVar[str] = "agent"

    type: Annotated[str, Field(max_length=316)]
    status: ConditionStatus
    reason: str
    message: str
