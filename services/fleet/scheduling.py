"""The events about the Pods of a NodePool: where each Pod is placed, and how it ends."""

from collections.abc import Iterator

from immutables import Map

from fleet.machine import Machine
from fleet.placement import place_pods
from fleet.pods import observe_node
from fleet.waiting import HANDED_OVER, MESSAGES, REBOOTED, Pool, PoolPod
from nodepool.contract.events import NodeObserved, PodChanged
from nodepool.contract.events.fleet import PodPhase, PodReason
from nodepool.contract.keys import MachineKey, PoolKey, machine_parts
from nodepool.contract.messages import pool_fields

Machines = Map[MachineKey, Machine]


def missing(key: PoolKey, pool: Pool, machines: Machines) -> Iterator[PodChanged | NodeObserved]:
    """Yield the events that are missing for the Pods of a NodePool: Pods that end come first.

    A Node is observed after the last Pod that is placed on it.
    """
    if pool.has_agent:
        for name in sorted(pool.pods):
            yield change_pod(key, pool.pods[name], "Gone", "Deleted", message=HANDED_OVER)
        return
    for machine in sorted(pool.unobserved):
        if machine in pool.nodes and machines[machine].answers:
            yield observe_node(machine, machines[machine], machines[machine].pods)
    for machine in sorted(pool.placed):
        yield from end_pods(key, pool, machines, machine)
    for name in pool.waiting:
        if not pool.exists or pool.pods[name].uid != pool.uid:
            yield change_pod(key, pool.pods[name], "Gone", "NodePoolDeleted")
    if pool.exists and pool.waiting:
        yield from _placements(key, pool, machines)


def end_pods(
    key: PoolKey, pool: Pool, machines: Machines, machine: MachineKey
) -> Iterator[PodChanged]:
    """Yield each Pod placed on this machine that ends, if that was not published yet."""
    for name in sorted(pool.placed.get(machine, ())):
        pod = pool.pods[name]
        change = _change(pod, machines[machine])
        if change is not None:
            is_rebooted = change == ("Gone", "Evicted") and machines[machine].restarting
            yield change_pod(key, pod, *change, message=REBOOTED if is_rebooted else "")


def _placements(
    key: PoolKey, pool: Pool, machines: Machines
) -> Iterator[PodChanged | NodeObserved]:
    nodes = [(machine, machines[machine]) for machine in sorted(pool.nodes)]
    after: dict[MachineKey, Machine] = {}
    own = (pool.pods[name] for name in pool.waiting)
    for pod, machine, with_it in place_pods(nodes, (pod.pod for pod in own if pod.uid == pool.uid)):
        after[machine] = with_it
        yield _running(key, pool.pods[pod.name], machine, with_it.assignment)
    for machine, with_them in after.items():
        yield observe_node(machine, with_them, with_them.pods)


def _change(pod: PoolPod, machine: Machine) -> tuple[PodPhase, PodReason] | None:
    """Return the next phase of a Pod on a machine, and the reason; None if no change is seen."""
    if not machine.joined or machine.assignment != pod.assignment:
        return "Gone", pod.reason or "NodeDeleted"
    if not (machine.answers or machine.restarting):
        return None
    on_it = machine.pods.get(pod.pod.name)
    if on_it is None:
        return "Gone", pod.reason or "Evicted"
    if on_it.terminating and pod.phase == "Running":
        return "Terminating", "Evicted"
    return None


def change_pod(
    key: PoolKey,
    pod: PoolPod,
    phase: PodPhase,
    reason: PodReason,
    grace_s: int | None = None,
    message: str = "",
) -> PodChanged:
    """Return the event that moves a Pod that ends to this phase.

    grace_s: the grace period that is left, in seconds; None for the grace period of the Pod.
    message: the cause in words; empty for the message of the reason.
    """
    zone, node = ("", "") if pod.machine is None else machine_parts(pod.machine)
    return PodChanged(
        **pool_fields(key),
        name=pod.pod.name,
        uid=pod.uid,
        number=pod.number,
        phase=phase,
        node=node,
        zone=zone,
        assignment=pod.assignment,
        gpus=pod.pod.gpus,
        accelerators=pod.pod.accelerators,
        grace_s=pod.pod.grace_s if grace_s is None else grace_s,
        reason=reason,
        message=message or MESSAGES[reason],
    )


def _running(key: PoolKey, pod: PoolPod, machine: MachineKey, assignment: int) -> PodChanged:
    zone, node = machine_parts(machine)
    return PodChanged(
        **pool_fields(key),
        name=pod.pod.name,
        uid=pod.uid,
        number=pod.number,
        phase="Running",
        node=node,
        zone=zone,
        assignment=assignment,
        gpus=pod.pod.gpus,
        accelerators=pod.pod.accelerators,
        grace_s=pod.pod.grace_s,
    )
