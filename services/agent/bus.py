"""What the bus says of a cluster: NodePools, Nodes, and what became of the agent's commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nodepool.contract.events import NodeConditionReported, NodeReported
from nodepool.contract.log import LogId
from nodepool.contract.messages import Command
from nodepool.contract.model import NodePhase, Taint

Document = Mapping[str, object]
"""An object as its JSON has it."""
Drain = Literal["", "safe", "forced"]
"""Whether a Node is to be drained, and whether that waits for what may block it."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log that the read model is made of.

    id: its identity.
    end: the position of its newest message, as far as known. It is to be asked for again before an
      agreement is compared that is newer: the log may have been restored from a backup.
    start: the position up to which the read model is known to show everything: that of the newest
      message when it was listed, or of the newest object that has come since.
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
    labels, annotations: its own.
    status: as the read model has it.
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

    name, zone, pool, assignment: which Node, of which NodePool, and which stay of the machine.
    version: its `resourceVersion`.
    phase: where it is between its assignment and its deletion.
    registered: whether it has joined its cluster; what follows is not to be seen before.
    unschedulable, cordon: whether it is cordoned, and the number of its last cordon.
    lock: the number of the lock that a Slurm job has on it, or waits for; 0 without one.
    drain: whether it is drained, and how.
    request: the number of the question how its condition Ready is; 0 where that is answered.
    labels, annotations, taints: all that the control plane owns of it.
    conditions: those of the read model.
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
    """A command that the agent has sent, and what became of it.

    id: of the command.
    outcome: its outcome; empty while there is none.
    is_shown: whether the read model has caught up with the outcome.
    reason, field, message: those of a refusal.
    command: what was sent; None where that is not known any more.
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
    """What this process has reported of a Node last; None for what it has not.

    node: how it was found.
    conditions: its conditions by type.
    drain: which drain of the Node its last report has answered.
    """

    node: NodeReported | None = None
    conditions: Mapping[str, NodeConditionReported] = field(default_factory=dict)
    drain: Drain = ""
