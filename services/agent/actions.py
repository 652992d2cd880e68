"""The actions of the agent: each is one request to the API server, or one message on the bus."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from agent.reading import Document
from nodepool.contract.commands import DeleteNodePool
from nodepool.contract.events import (
    NodeConditionReported,
    NodeReported,
    PodsWaitingReported,
    Severity,
)
from nodepool.contract.messages import Command

Drain = Literal["", "safe", "forced"]
"""How a Node is drained: not at all, with its Pods able to block the drain, or by force."""


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster that an agent connects to the bus.

    org, cluster, zone: the organisation, the name and the zone of the cluster.
    """

    org: str
    cluster: str
    zone: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A command that the agent has sent, and its outcome.

    id: the id of the command.
    outcome: its outcome; empty while there is no outcome.
    is_shown: whether the read model has caught up with the outcome.
    reason, field, message: the parts of a refusal.
    command: the command itself; None if it is not known any more.
    """

    id: str
    outcome: Literal["", "accepted", "refused"] = ""
    is_shown: bool = False
    reason: str = ""
    field: str = ""
    message: str = ""
    command: Command | None = None


Kind = Literal["NodePool", "Node", "Pod"]
"""The kinds of object that the agent changes."""


@dataclass(frozen=True, slots=True)
class Send:
    """Sends a command with this id; commands with the same id count as one."""

    id: str
    command: Command


@dataclass(frozen=True, slots=True)
class Report:
    """Reports the state of a Node.

    drain: which drain of the Node the report answers; empty for no drain.
    """

    event: NodeReported | NodeConditionReported
    drain: Drain = ""


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Reports which Pods wait for a Node of a NodePool."""

    event: PodsWaitingReported


@dataclass(frozen=True, slots=True)
class ListPods:
    """Lists the Pods of a Node from the API server, once the scheduler has seen a cordon.

    key: what the list proves, see `agent.nodes.memory.NodeMemory.find_proven_key`.
    """

    node: str
    key: str


@dataclass(frozen=True, slots=True)
class Create:
    """Creates an object; does no harm if an object of that name already exists."""

    kind: Kind
    document: Document


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes an object, or its status.

    patch: a JSON merge patch (RFC 7386); for the status of a Node, a strategic merge patch. If its
      metadata has a `resourceVersion`, the API server refuses it if the object has changed since.
    """

    kind: Kind
    name: str
    patch: Document
    subresource: Literal["", "status"] = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes an object of this uid.

    grace_s: the grace period of a Pod in seconds; None for the default of the Pod.
    version: the `resourceVersion` of the object: the API server refuses the deletion if the object
      has changed since; empty to delete any version.
    """

    kind: Kind
    name: str
    uid: str
    namespace: str = ""
    grace_s: int | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class Evict:
    """Asks the Eviction API to end a Pod, which PodDisruptionBudgets may refuse."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Records a Kubernetes Event about an object, once for each key.

    key: distinguishes the Event from all others about the object; the name of the Event is derived
      from it.
    time, last, count: when its first and its last event happened, and how many events there were.
    """

    kind: Kind
    name: str
    uid: str
    severity: Severity
    reason: str
    message: str
    key: str
    time: datetime | None = None
    namespace: str = ""
    component: str = "nodepool-agent"
    last: datetime | None = None
    count: int = 1


Action = Send | Report | ReportWaiting | ListPods | Create | Patch | Delete | Evict | RecordEvent


def ends_pod(action: Action) -> bool:
    """Return whether an action ends a Pod."""
    return isinstance(action, Evict) or (isinstance(action, Delete) and action.kind == "Pod")


def is_deletion(action: Action) -> bool:
    """Return whether an action deletes a NodePool on the bus."""
    return isinstance(action, Send) and isinstance(action.command, DeleteNodePool)
