"""Which Node takes which Pod.

A Node takes a Pod that tolerates its taints, if it has no Pod of that name, and room: 110 Pods, and
as many GPUs of each of the two names as its machine has. Kubernetes counts each name for itself, so
Pods that ask under different names may share the same GPUs; see
https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fleet.machine import Machine
from fleet.pods import with_pod
from nodepool.contract.keys import MachineKey
from nodepool.contract.pods import PODS_MAX, Pod, Toleration

Demand = tuple[int, int, tuple[Toleration, ...]]
"""What decides which Nodes are open to a Pod, its name aside."""


class Free(NamedTuple):
    """What is left on a Node: Pods, and GPUs by each of their names."""

    pods: int
    gpus: int
    accelerators: int

    def without(self, pod: Pod) -> "Free":
        """What is left beside this Pod too."""
        return Free(self.pods - 1, self.gpus - pod.gpus, self.accelerators - pod.accelerators)


def free(machine: Machine) -> Free:
    """What its Pods leave; those in their grace period still count."""
    left = Free(PODS_MAX, machine.gpus, machine.gpus)
    for pod in machine.pods.values():
        left = left.without(pod)
    return left


def is_open(machine: Machine, pod: Pod) -> bool:
    """Whether this Node takes Pods, and has no taint that keeps this one away."""
    is_closed = machine.unschedulable or machine.verifying
    if not machine.joined or not machine.answers or is_closed:
        return False
    return pod.repelled(machine.taints, "NoSchedule", "NoExecute") is None


def placed(
    nodes: Sequence[tuple[MachineKey, Machine]], pods: Iterable[Pod]
) -> Iterator[tuple[Pod, MachineKey, Machine]]:
    """The Pods, in their order, that a Node takes now: each with the first Node that does.

    With each comes its machine as it is with the Pod.
    """
    machines = [machine for _, machine in nodes]
    rooms = [free(machine) for machine in machines]
    begins: dict[Demand, int] = {}
    for pod in pods:
        demand = pod.gpus, pod.accelerators, pod.tolerations
        # What had no room for an earlier Pod of the same demand has none now.
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
    """The place of the first Node from `begin` on that is open and has room; else their number."""
    for place in range(begin, len(machines)):
        if min(rooms[place].without(pod)) >= 0 and is_open(machines[place], pod):
            return place
    return len(machines)
