"""A Node on its way through a NodePool, and how each message about it changes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from nodepool.contract.events import (
    CWDrainNode,
    CWNodeDeletionRequestSuccess,
    CWNodeRegistered,
    NodeActivityChanged,
    NodeObserved,
    NodeUpdated,
    PreemptionInProgress,
    PreemptionPending,
)
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import NodePhase, RemovalReason


@dataclass(frozen=True, slots=True)
class Node:
    """One stay of a machine in a NodePool.

    name: the name of the machine, and of the Node.
    assignment: the number of the stay.
    topology: the labels that the machine has of its own.
    boot_by: when its registration fails if the machine has not booted.
    revision: of the template that it looks like; 0 before it is registered.
    active: whether it was published as active.
    workloads: the Pods that make it active, as its machine reported last.
    removal: why it leaves; None while it stays.
    idle_only: whether it is kept if it turns out to be active.
    request: the number of the last request to delete it.
    cordon: how often it was cordoned.
    evicted_at: when its drain for a preemption began; None without one.
    """

    name: str
    pool: PoolKey
    assignment: int
    topology: Mapping[str, str]
    boot_by: datetime
    revision: int = 0
    phase: NodePhase = NodePhase.BOOTING
    active: bool = False
    workloads: tuple[str, ...] = ()
    removal: RemovalReason | None = None
    idle_only: bool = False
    request: int = 0
    cordon: int = 0
    evicted_at: datetime | None = None

    @property
    def booting(self) -> bool:
        """Whether it has not joined its cluster yet."""
        return self.phase is NodePhase.BOOTING

    @property
    def cordoned(self) -> bool:
        """Whether nothing new may be scheduled on it."""
        return is_cordoned(self.phase)


NodeChange = (
    CWNodeRegistered
    | NodeUpdated
    | NodeObserved
    | NodeActivityChanged
    | CWDrainNode
    | CWNodeDeletionRequestSuccess
    | PreemptionPending
    | PreemptionInProgress
)
"""The messages that change a Node while it stays."""


def is_cordoned(phase: NodePhase) -> bool:
    """Whether nothing new may be scheduled on a Node in this phase."""
    return phase in (NodePhase.CORDONED, NodePhase.DRAINING)


def changed(node: Node, message: NodeChange) -> Node:
    """The Node after a message about it."""
    match message:
        case CWNodeRegistered():
            return replace(node, phase=NodePhase.PRODUCTION)
        case NodeUpdated(phase=phase, removal=removal, cordon=cordon):
            return replace(node, phase=phase, removal=removal, cordon=cordon)
        case NodeObserved(pods=pods):
            workloads = tuple(sorted(pod.name for pod in pods if pod.counts_as_work))
            return replace(node, workloads=workloads)
        case NodeActivityChanged(active=active):
            return replace(node, active=active)
        case CWDrainNode():
            return replace(node, phase=NodePhase.DRAINING)
        case CWNodeDeletionRequestSuccess():
            return _requested(node, message)
        case PreemptionPending():
            return replace(node, removal=RemovalReason.PREEMPTED, idle_only=False)
        case PreemptionInProgress(evicted_at=moment):
            return replace(node, evicted_at=moment)
        case _:
            assert_never(message)


def _requested(node: Node, event: CWNodeDeletionRequestSuccess) -> Node:
    # A preemption has its own timetable, which neither a scale-down nor a deletion shortens.
    if node.removal is RemovalReason.PREEMPTED:
        return node
    return replace(node, removal=event.removal, idle_only=event.idle_only, request=event.request)
