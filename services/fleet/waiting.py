"""The Pods of a NodePool: the Pods that wait for one of its Nodes, and the placed Pods."""

from dataclasses import dataclass

from immutables import Map

from fleet.machine import Machine
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.events import NodePoolValidated, PodChanged
from nodepool.contract.events.fleet import PodPhase, PodReason
from nodepool.contract.keys import MachineKey, PoolKey, machine_key
from nodepool.contract.messages import pool_fields
from nodepool.contract.model import Taint
from nodepool.contract.pods import Pod
from nodepool.state.queue import Queue
from nodepool.state.values import replace

WAITING_MAX = 10_000
"""The maximum number of Pods of a NodePool that wait for a Node; more Pods are refused."""
MESSAGES: dict[PodReason, str] = {
    "": "",
    "Completed": "its work is done",
    "Deleted": "it was deleted",
    "Evicted": "its Node is drained, or has a taint that it does not tolerate",
    "NodeDeleted": "its Node is deleted",
    "NodePoolDeleted": "its NodePool is deleted",
}
"""Why a Pod ends, as the message of its event."""
HANDED_OVER = "its cluster has Pods of its own from now on"
"""Why a Pod ends when an agent connects its cluster to Kubernetes."""
REBOOTED = "its Node is rebooted"
"""Why a Pod is evicted when its Node is rebooted."""


@dataclass(frozen=True, slots=True)
class PoolPod:
    """A Pod of a NodePool, as last published.

    pod: the Pod as it was created.
    uid: the UID of the NodePool.
    number: the position of the command that created the Pod.
    phase, reason: the phase of the Pod, and why it ends.
    machine, assignment: the Node that the Pod was placed on; `machine` is None while the Pod waits.
    """

    pod: Pod
    uid: str
    number: int
    phase: PodPhase = "Pending"
    reason: PodReason = ""
    machine: MachineKey | None = None
    assignment: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool: its Nodes and its Pods.

    uid, instance_type: the UID and the instance type of the NodePool.
    has_agent: whether an agent connects its cluster to Kubernetes; the fleet ignores Pods there.
    exists: False once it is deleted; it is forgotten when the last of its Pods is gone.
    taints: the taints that all its Nodes have, and that the events about each Node do not repeat.
    last_taints: the taints of the Node that changed last; Nodes with equal taints share them.
    nodes: its Nodes.
    pods: its Pods, by name.
    placed: the names of the Pods on each Node.
    waiting: the names of the Pods without a Node, in the order in which they were created.
    unobserved: its Nodes on which a Pod was placed since the last observation of the Node.
    """

    uid: str
    instance_type: str
    has_agent: bool = False
    exists: bool = True
    taints: tuple[Taint, ...] = ()
    last_taints: tuple[Taint, ...] = ()
    nodes: Map[MachineKey, bool] = Map()
    pods: Map[str, PoolPod] = Map()
    placed: Map[MachineKey, Map[str, bool]] = Map()
    waiting: Queue[str] = Queue()
    unobserved: Map[MachineKey, bool] = Map()

    def pod_on(self, machine: MachineKey, name: str) -> PoolPod | None:
        """Return the Pod of this name, if it was placed on this machine."""
        pod = self.pods.get(name)
        return pod if pod is not None and pod.machine == machine else None

    @property
    def is_over(self) -> bool:
        """Return whether the NodePool is deleted and none of its Pods is left."""
        return not self.exists and not self.pods


def gpus_of(instance_type: str) -> int:
    """Return the number of GPUs of a machine of this type; 0 if the type is unknown."""
    entry = INSTANCE_TYPES.get(instance_type)
    return entry.gpus if entry is not None else 0


def specify_pool(pool: Pool | None, event: NodePoolValidated, *, has_agent: bool) -> Pool:
    """Return the NodePool after its validation; Pods of an earlier NodePool of this name remain."""
    if pool is None:
        return Pool(event.uid, event.spec.instance_type, has_agent)
    if pool.uid == event.uid:
        return pool
    return replace(
        pool, uid=event.uid, instance_type=event.spec.instance_type, exists=True, taints=()
    )


def with_pod(pool: Pool, event: PodChanged) -> Pool:
    """Return the NodePool after a change of its Pod."""
    name = event.name
    if event.phase == "Gone":
        return _without(pool, name)
    if event.spec is not None:
        pod = PoolPod(event.spec, event.uid, event.number)
        return replace(pool, pods=pool.pods.set(name, pod), waiting=pool.waiting.put(name))
    machine = machine_key(event.zone, event.node)
    pod = replace(
        pool.pods[name],
        phase=event.phase,
        reason=event.reason,
        machine=machine,
        assignment=event.assignment,
    )
    names, unobserved = pool.placed.get(machine, Map()).set(name, True), pool.unobserved
    return replace(
        pool,
        pods=pool.pods.set(name, pod),
        placed=pool.placed.set(machine, names),
        waiting=pool.waiting.drop(name),
        unobserved=unobserved.set(machine, True) if event.phase == "Running" else unobserved,
    )


def _without(pool: Pool, name: str) -> Pool:
    pod = pool.pods.get(name)
    if pod is None:
        return pool
    pool = replace(pool, pods=pool.pods.delete(name), waiting=pool.waiting.drop(name))
    if pod.machine is None:
        return pool
    names, placed = pool.placed[pod.machine].delete(name), pool.placed
    after = placed.set(pod.machine, names) if names else placed.delete(pod.machine)
    return replace(pool, placed=after)


def create_pod(key: PoolKey, pool: Pool, pod: Pod, number: int) -> PodChanged:
    """Return the event of a new Pod that waits for a Node."""
    return PodChanged(
        **pool_fields(key),
        name=pod.name,
        uid=pool.uid,
        number=number,
        phase="Pending",
        gpus=pod.gpus,
        accelerators=pod.accelerators,
        grace_s=pod.grace_s,
        spec=pod,
    )


def with_node(pool: Pool, key: MachineKey, before: Machine | None, after: Machine) -> Pool:
    """Return the NodePool after its machine changed; a joined machine is a Node of the NodePool."""
    if after.joined == (before is not None and before.joined):
        return pool
    if after.joined:
        return replace(pool, nodes=pool.nodes.set(key, True))
    return note_observation(replace(pool, nodes=pool.nodes.delete(key)), key)


def note_observation(pool: Pool, key: MachineKey) -> Pool:
    """Return the NodePool after this Node was observed with the Pods that were placed on it."""
    if key not in pool.unobserved:
        return pool
    return replace(pool, unobserved=pool.unobserved.delete(key))


def concerns_pods(before: Machine | None, after: Machine) -> bool:
    """Return whether a Pod may end or be placed because of this change of a machine."""
    return before is None or _list_visible_parts(before) != _list_visible_parts(after)


def _list_visible_parts(machine: Machine) -> tuple[object, ...]:
    states = machine.joined, machine.answers, machine.unschedulable, machine.verifying
    return (*states, machine.restarting, machine.assignment, machine.taints, machine.pods)
