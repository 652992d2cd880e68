"""What the validator says: clusters, NodePool objects and their generations, Validated."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Literal

from nodepool.contract.conditions import Validated
from nodepool.contract.events.kubernetes import KubernetesEvent, Severity
from nodepool.contract.messages import Event, OfCluster, OfPool
from nodepool.contract.model import NodePoolSpec

SpecFault = Literal["", "InstanceType", "Zone", "Settings"]
"""What an invalid spec is wrong about; empty for a valid one."""


class ClusterRegistered(Event, OfCluster):
    """A cluster exists, in this zone.

    kubernetes: whether an agent connects it to Kubernetes; said again when that begins.
    kubernetes_uid: the uid of the namespace `kube-system` of that Kubernetes; empty where it is not
        known. Said again when it is, or is another one.
    """

    speaker: ClassVar[str] = "validator"

    zone: str
    kubernetes: bool = False
    kubernetes_uid: str = ""


class NodePoolValidated(Event, OfPool):
    """A NodePool's desired state and whether it is valid; said whenever either changes.

    uid: distinguishes the NodePool from earlier ones of the same name.
    zone: the zone of its cluster.
    generation: counts the changes of the spec.
    version: the position of the command that changed the object last.
    created: when the object was created.
    labels, annotations: the metadata of the object.
    spec: the desired state.
    reason: the reason of the condition Validated.
    fault: what an invalid spec is wrong about.
    message: the message of the condition.
    autoscaled: why the autoscaler set the target; empty where a command did.
    """

    speaker: ClassVar[str] = "validator"

    uid: str
    zone: str
    generation: int
    version: int
    created: datetime
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    spec: NodePoolSpec
    reason: Validated
    fault: SpecFault = ""
    message: str
    autoscaled: str = ""


class NodePoolDeleting(Event, OfPool):
    """A NodePool is being deleted since this moment: its Nodes first, then the object."""

    speaker: ClassVar[str] = "validator"

    uid: str
    generation: int
    since: datetime


class NodePoolUpdateFailed(Event, OfPool):
    """A NodePool could not be checked again, or its deletion not be ended; it is tried again."""

    speaker: ClassVar[str] = "validator"

    message: str


class CWNodePoolCreated(KubernetesEvent):
    """A NodePool is created."""

    speaker: ClassVar[str] = "validator"


class CWNodePoolDeleted(KubernetesEvent):
    """A NodePool is deleted: the object is gone."""

    speaker: ClassVar[str] = "validator"

    uid: str


class CWInvalidInstanceType(KubernetesEvent):
    """A NodePool names an instance type that does not exist."""

    speaker: ClassVar[str] = "validator"
    severity: ClassVar[Severity] = "Warning"


class CWInstanceTypeNotInZone(KubernetesEvent):
    """A NodePool names an instance type that its zone does not offer."""

    speaker: ClassVar[str] = "validator"
    severity: ClassVar[Severity] = "Warning"
