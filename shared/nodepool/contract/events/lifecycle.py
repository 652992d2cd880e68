"""What the lifecycle service says: where each Node is between its assignment and its deletion."""

from collections.abc import Mapping
from typing import ClassVar

from nodepool.contract.events.kubernetes import KubernetesEvent, Severity
from nodepool.contract.messages import Event, OfNode
from nodepool.contract.model import NodePhase, RemovalReason, Taint


class NodeUpdated(Event, OfNode):
    """A Node as it should look in its cluster: all that the control plane owns of it.

    phase: where it is between its assignment and its deletion.
    unschedulable: whether it is cordoned.
    cordon: counts the cordons in this assignment.
    labels, annotations, taints: those of the Node object.
    removal: why it is to leave; None for a Node that stays.
    """

    speaker: ClassVar[str] = "lifecycle"

    phase: NodePhase
    unschedulable: bool
    cordon: int = 0
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    removal: RemovalReason | None = None


class NodeActivityChanged(Event, OfNode):
    """A Node became active or idle (its condition CWActive); `message` names what runs on it."""

    speaker: ClassVar[str] = "lifecycle"

    active: bool
    message: str


class NodeKept(Event, OfNode):
    """A Node that was to be deleted stays: it became active, or its NodePool wants to keep it.

    request: the number of the request to delete it that is not carried out.
    message: why it stays.
    """

    speaker: ClassVar[str] = "lifecycle"

    request: int = 0
    message: str


class CWNodeRegistered(OfNode, KubernetesEvent):
    """A Node has joined its cluster, with these labels, annotations and taints."""

    speaker: ClassVar[str] = "lifecycle"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]


class CWNodeRegistrationFailed(OfNode, KubernetesEvent):
    """A Node could not join its cluster; its machine goes to triage. `uid` is the NodePool's."""

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node",)

    uid: str


class CWRegistrationFailedEvent(KubernetesEvent):
    """The name under which the product's Node events list a failed registration; not said."""

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node",)


class CWDrainNode(OfNode, KubernetesEvent):
    """A Node is being drained; with `force`, no Pod can delay it."""

    speaker: ClassVar[str] = "lifecycle"

    force: bool


class CWNodeDeleted(OfNode, KubernetesEvent):
    """A Node is deleted and its machine is free.

    registered: whether the Node had joined its cluster.
    uid: the NodePool's.
    """

    speaker: ClassVar[str] = "lifecycle"

    registered: bool
    uid: str


class CWNodePoolMetadata(KubernetesEvent):
    """The labels, annotations or taints of a NodePool's Nodes are updated."""

    speaker: ClassVar[str] = "lifecycle"


class CWNodePoolNodesRemoveError(KubernetesEvent):
    """A Node could not be removed for an internal error."""

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"
