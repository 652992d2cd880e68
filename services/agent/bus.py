"""What the bus says about a cluster: NodePools, Nodes, and outcomes of the agent's commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nodepool.contract.events import NodeConditionReported, NodeReported
from nodepool.contract.log import LogId
from nodepool.contract.messages import Command
from nodepool.contract.model import NodePhase, Taint

Document = Mapping[str, object]
"""An object as decoded from JSON."""
Drain = Literal["", "safe", "forced"]
"""Whether to drain a Node, and if so, whether to wait for what may block the drain."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log from which the read model is built.

    id: its identity.
    end: the position of its newest message, as far as known. Before an agreement with a higher
      position is compared, read it again: the log may have been restored from a backup.
    start: the position up to which the read model is known to be complete: the position of the
      newest message when the read model was listed, or of the newest object received since.
    """

    id: LogId
    end: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class WantedPool:
    """A NodePool of the read model.

    name, uid: its name, and its uid on the bus.
    generation: of its spec on the bus.
    version: its `resourceVersion`.
    deleting: whether it is being deleted.
    spec: as `nodepool.contract.model.spec_document` writes it.
    labels, annotations: its labels and annotations.
    status: its status in the read model.
    """

    name: str
    uid: str
    generation: int
    version: str
    spec: Document
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Document = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WantedNode:
    """A Node of the read model.

    name, zone, pool, assignment: its name, zone and NodePool, and the number of the machine's stay.
    version: its `resourceVersion`.
    phase: its phase between its assignment and its deletion.
    registered: whether it has joined its cluster; its object shows the fields below only then.
    unschedulable, cordon: whether it must be cordoned, and the number of its last cordon.
    lock: the number of the lock that a Slurm job holds on it or waits for; 0 without a lock.
    drain: whether to drain it, and how.
    request: the number of the request for its condition Ready; 0 if the request is answered.
    labels, annotations, taints: those that the control plane owns.
    conditions: its conditions in the read model.
    """

    name: str
    zone: str
    pool: str
    assignment: int
    version: str
    phase: NodePhase
    registered: bool = False
    unschedulable: bool = False
    cordon: int = 0
    lock: int = 0
    drain: Drain = ""
    request: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    conditions: tuple[Document, ...] = ()


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


@dataclass(frozen=True, slots=True)
class Reported:
    """What this process last reported about a Node.

    node: the last report of the Node; None if there was no report.
    conditions: the last report of each condition, by type.
    drain: which drain of the Node the last report answered.
    """

    node: NodeReported | None = None
    conditions: Mapping[str, NodeConditionReported] = field(default_factory=dict)
    drain: Drain = ""
