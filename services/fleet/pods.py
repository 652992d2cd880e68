"""The Pods on a machine: how they end, and how they are observed."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from immutables import Map

from fleet.machine import Machine
from nodepool.contract.events import NodeObserved
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.pods import Pod, PodClass
from nodepool.state.values import replace


def drain_machine(machine: Machine, now: datetime, *, force: bool) -> Machine:
    """Return the machine with a drain begun, which still has to be observed.

    Interruptable Pods end immediately. Graceful Pods end after their grace period, and so do all
    others if the drain is forced. Pods of DaemonSets stay, as with `kubectl drain`; see
    https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/.
    """
    pods, kills = machine.pods, machine.kills
    for name, pod in machine.pods.items():
        if pod.daemon_set or pod.terminating:
            continue
        if pod.interruption is PodClass.INTERRUPTABLE:
            pods = pods.delete(name)
        elif pod.interruption is PodClass.GRACEFUL or force:
            pods = pods.set(name, pod.model_copy(update={"terminating": True}))
            kills = kills.set(name, now + timedelta(seconds=pod.grace_s))
    return replace(machine, pods=pods, kills=kills, evicting=True)


def evict_pods(machine: Machine, now: datetime) -> Machine:
    """Return the machine with the Pods evicted that do not tolerate its NoExecute taints.

    Interruptable Pods end immediately, all others after their grace period. Pods of DaemonSets are
    no exception.
    """
    after = machine
    for name, pod in machine.pods.items():
        if pod.find_repelling_taint(machine.taints, "NoExecute") is None or pod.terminating:
            continue
        if pod.interruption is PodClass.INTERRUPTABLE:
            after = without_pod(after, name)
        else:
            after = ending(after, name, now + timedelta(seconds=pod.grace_s))
    return machine if after is machine else replace(after, evicting=True)


def with_pod(machine: Machine, pod: Pod) -> Machine:
    """Return the machine with this Pod added."""
    return replace(machine, pods=machine.pods.set(pod.name, pod))


def ending(machine: Machine, name: str, due: datetime) -> Machine:
    """Return the machine with this Pod in its grace period, which ends at `due` at the latest."""
    pod = machine.pods.get(name)
    if pod is None:
        return machine
    return replace(
        machine,
        pods=machine.pods.set(name, pod.model_copy(update={"terminating": True})),
        kills=machine.kills.set(name, min(due, machine.kills.get(name, due))),
    )


def without_pod(machine: Machine, name: str) -> Machine:
    """Return the machine without this Pod."""
    return with_pods(machine, (pod for pod in machine.pods.values() if pod.name != name))


def surviving(machine: Machine, now: datetime) -> Map[str, Pod]:
    """Return the Pods of the machine except those whose grace period is over."""
    pods = machine.pods
    for name, due in machine.kills.items():
        if due <= now:
            pods = pods.delete(name)
    return pods


def with_pods(machine: Machine, pods: Iterable[Pod]) -> Machine:
    """Return the machine with these Pods and no others."""
    left = Map({pod.name: pod for pod in pods})
    kills = Map({name: due for name, due in machine.kills.items() if name in left})
    return replace(machine, pods=left, kills=kills)


def observe_node(key: MachineKey, machine: Machine, pods: Map[str, Pod]) -> NodeObserved:
    """Return the observation of a Node with these Pods, sorted by name."""
    zone, name = machine_parts(key)
    return NodeObserved(
        zone=zone,
        machine=name,
        assignment=machine.assignment,
        unschedulable=machine.unschedulable,
        cordon=machine.cordon,
        lock=machine.lock,
        pods=tuple(pods[pod] for pod in sorted(pods)),
    )
