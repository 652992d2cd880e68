"""Which Node takes which Pod.

A Node takes a Pod that tolerates its taints, if it has no Pod of that name, and room: 110 Pods, and
as many GPUs of each of the two names as its machine has. Kubernetes counts each name separately,
so Pods that request GPUs under different names may share the same GPUs; see
https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fleet.machine import Machine
from fleet.pods import with_pod
from nodepool.contract.keys import MachineKey
from nodepool.contract.pods import PODS_MAX, Pod, Toleration

Demand = tuple[int, int, tuple[Toleration, ...]]
"""Everything except the name of a Pod that determines which Nodes can take the Pod."""


class Free(NamedTuple):
    """The room on a Node: free Pod slots, and free GPUs under each of the two names."""

    pods: int
    gpus: int
    accelerators: int

    def without(self, pod: Pod) -> "Free":
        """Return the room that is left with this Pod on the Node too."""
        return Free(self.pods - 1, self.gpus - pod.gpus, self.accelerators - pod.accelerators)


def free(machine: Machine) -> Free:
    """Return the room that its Pods leave on a machine; Pods in their grace period still count."""
    left = Free(PODS_MAX, machine.gpus, machine.gpus)
    for pod in machine.pods.values():
        left = left.without(pod)
    return left


def is_open(machine: Machine, pod: Pod) -> bool:
    """Return whether this Node takes Pods, and has no taint that keeps this Pod away."""
    is_closed = machine.unschedulable or machine.verifying
    if not machine.joined or not machine.answers or is_closed:
        return False
    return pod.find_repelling_taint(machine.taints, "NoSchedule", "NoExecute") is None


def place_pods(
    nodes: Sequence[tuple[MachineKey, Machine]], pods: Iterable[Pod]
) -> Iterator[tuple[Pod, MachineKey, Machine]]:
    """Yield the Pods that a Node takes now, in their order, each with the first Node that does.

    Each machine already holds the Pod that it is yielded with.
    """
    machines = [machine for _, machine in nodes]
    rooms = [free(machine) for machine in machines]
    begins: dict[Demand, int] = {}
    for pod in pods:
        demand = pod.gpus, pod.accelerators, pod.tolerations
        # A Node without room for an earlier Pod with the same demand has no room now.
        first = _first(machines, rooms, pod, begins.get(demand, 0))
        begins[demand] = first
        while first < len(nodes) and pod.name in machines[first].pods:
            first = _first(machines, rooms, pod, first + 1)
        if first == len(nodes):
            continue
        machines[first] = with_pod(machines[first], pod)
        rooms[first] = rooms[first].without(pod)
        yield pod, nodes[first][0], machines[first]


def _first(machines: Sequence[Machine], rooms: Sequence[Free], pod: Pod, begin: int) -> int:
    """Return the index of the first open Node with room, from `begin` on, or the count of Nodes."""
    for place in range(begin, len(machines)):
        if min(rooms[place].without(pod)) >= 0 and is_open(machines[place], pod):
            return place
    return len(machines)
