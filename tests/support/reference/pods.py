"""Pods as a second specification: none waits for a Node that could take it, and no lock is pending.

From the log: what the Pods ask for, what runs on each Node, and what the Nodes look like.
"""

from collections.abc import Iterator

from fleet.state import State as FleetState
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistered,
    NodeLockChanged,
    NodeObserved,
    NodeUpdated,
    PodChanged,
)
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import Taint
from nodepool.contract.pods import Pod, reserved_taint
from nodepool.engine.world import World
from support.reference.history import History

LOCK = "sunk.coreweave.com/lock"


class Node:
    """A Node as the log shows it last."""

    def __init__(self, event: CWNodeRegistered) -> None:
        self.machine = event.machine_key
        self.pool = event.key
        self.pods: tuple[Pod, ...] = ()
        self.unschedulable = False
        self.lock = ""
        self.taints = _foreign(event)

    def after(self, event: NodeUpdated | NodeObserved | NodeLockChanged) -> None:
        """Notes what is new of it."""
        match event:
            case NodeUpdated():
                self.unschedulable, self.taints = event.unschedulable, _foreign(event)
            case NodeObserved():
                self.pods = event.pods
            case NodeLockChanged():
                self.lock = event.lock


def faults(world: World, history: History) -> Iterator[str]:
    """Every Pod that waits in vain, and every lock that is still pending."""
    nodes, waiting, fleet = _nodes(history), _waiting(history), world.state("fleet")
    assert isinstance(fleet, FleetState)
    for node in nodes:
        if node.lock == "pending":
            yield f"the lock of {node.machine} is still pending"
    for (pool, name), pod in waiting.items():
        for node in nodes:
            # The log does not say of each machine that it hangs.
            machine = fleet.machines[node.machine]
            if node.pool == pool and machine.answers and _takes(node, pod, machine.gpus):
                yield f"Pod {name} of {pool} waits, and {node.machine} could take it"


def _foreign(event: CWNodeRegistered | NodeUpdated) -> tuple[Taint, ...]:
    """Return the taints of a Node without that of its organisation, which its Pods tolerate."""
    own = reserved_taint(event.org)
    return tuple(taint for taint in event.taints if taint != own)


def _nodes(history: History) -> list[Node]:
    nodes: dict[int, Node] = {}
    for stored in history.messages:
        match stored.message:
            case CWNodeRegistered() as event:
                nodes[event.assignment] = Node(event)
            case CWNodeDeleted() as event:
                nodes.pop(event.assignment, None)
            case NodeUpdated() | NodeObserved() | NodeLockChanged() as event:
                if event.assignment in nodes:
                    nodes[event.assignment].after(event)
            case _:
                pass
    return list(nodes.values())


def _waiting(history: History) -> dict[tuple[PoolKey, str], Pod]:
    waiting: dict[tuple[PoolKey, str], Pod] = {}
    for stored in history.messages:
        event = stored.message
        if isinstance(event, PodChanged):
            if event.spec is not None:
                waiting[event.key, event.name] = event.spec
            else:
                waiting.pop((event.key, event.name), None)
    return waiting


def _takes(node: Node, pod: Pod, most: int) -> bool:
    is_slurm = any(toleration.key == LOCK for toleration in pod.tolerations)
    repelling = [t for t in node.taints if t.effect != "PreferNoSchedule" and t.key != LOCK]
    is_locked = any(taint.key == LOCK for taint in node.taints) and not is_slurm
    is_full = (
        sum(other.gpus for other in node.pods) + pod.gpus > most
        or sum(other.accelerators for other in node.pods) + pod.accelerators > most
        or any(other.name == pod.name for other in node.pods)
    )
    return not (node.unschedulable or repelling or is_locked or is_full)
