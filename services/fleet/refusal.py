"""Why a command to the simulated machines is refused."""

from dataclasses import dataclass

from fleet.machine import Machine
from fleet.placement import free
from fleet.waiting import WAITING_MAX, Pool, PoolPod, gpus_of
from fleet.wipes import WIPE_FAULTS
from nodepool.contract import grammar
from nodepool.contract.affinity import TOPOLOGY_KEYS
from nodepool.contract.catalog import (
    is_offered,
    provider_fault,
    rack_size,
    type_fault,
    zone_fault,
)
from nodepool.contract.commands import AddMachines, BreakMachine, CreatePod, DeletePod, StopPod
from nodepool.contract.events import RefusalReason
from nodepool.contract.keys import MachineKey, pool_path
from nodepool.contract.model import Taint
from nodepool.contract.pods import PODS_MAX, Pod
from nodepool.placement.racks import NVLINK_DOMAIN

PROVIDER = "fleet"
"""The name of this provider in the catalog."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command is refused: the field at fault, one sentence, and the kind of fault."""

    field: str
    message: str
    reason: RefusalReason = "Invalid"


def unfit(command: AddMachines) -> Refusal | None:
    """Return why these machines cannot be added; None if they can."""
    if reason := type_fault(command.instance_type):
        return Refusal("instanceType", reason)
    if reason := zone_fault(command.zone):
        return Refusal("zone", reason)
    if refusal := find_foreign_zone(command.zone):
        return refusal
    if not is_offered(command.instance_type, command.zone):
        return Refusal("zone", f"{command.instance_type} is not offered in {command.zone}")
    for key, value in command.labels.items():
        if key not in TOPOLOGY_KEYS:
            return Refusal(f"labels[{key[:100]}]", "is not a topology label of machines")
        if reason := grammar.label_value(value):
            return Refusal(f"labels[{key}]", reason)
    return _find_rack_fault(command) if command.in_racks else None


def find_foreign_zone(zone: str) -> Refusal | None:
    """Return why the fleet has no machine in this zone; None if it may have some."""
    reason = provider_fault(zone, PROVIDER)
    return Refusal("zone", reason) if reason is not None else None


def _find_rack_fault(command: AddMachines) -> Refusal | None:
    """Return why these machines are no whole racks with an NVLink domain each; None if they are."""
    size = rack_size(command.instance_type)
    if not size:
        return Refusal("inRacks", f"must be false: {command.instance_type} comes one by one")
    if command.count % size:
        return Refusal("count", f"must be a multiple of {size}, the machines of one rack")
    if NVLINK_DOMAIN in command.labels:
        return Refusal(
            f"labels[{NVLINK_DOMAIN}]", "must be left out: with inRacks each rack has one"
        )
    return None


def unschedulable(key: MachineKey, machine: Machine, pool: Pool | None, pod: Pod) -> Refusal | None:
    """Return why this Pod cannot run on this machine of a NodePool; None if it can."""
    if refusal := find_pod_fault(pod) or foreign(machine):
        return refusal
    if not machine.joined:
        return Refusal("machine", "is not a Node of any cluster")
    if machine.restarting:
        return Refusal("machine", "is being rebooted")
    if not machine.answers:
        return Refusal("machine", "does not answer")
    if machine.verifying and not (pod.daemon_set or pod.verification):
        return Refusal("machine", "is being verified")
    if machine.unschedulable and not pod.daemon_set:
        return Refusal("machine", "is cordoned")
    is_published = pool is not None and pool.pod_on(key, pod.name) is not None
    if pod.name in machine.pods or is_published:
        return Refusal("pod.name", f"{pod.name} runs there already")
    if len(machine.pods) >= PODS_MAX:
        return Refusal("machine", f"runs {PODS_MAX} Pods already")
    if taint := pod.find_repelling_taint(machine.taints, "NoExecute"):
        return Refusal(
            "pod.tolerations", f"do not tolerate the taint {format_taint(taint)} of the Node"
        )
    return _too_few_gpus(machine, pod)


def foreign(machine: Machine) -> Refusal | None:
    """Return why no Pod of this machine can be started or stopped here; None if a Pod can."""
    if machine.pool is None or not machine.has_agent:
        return None
    return Refusal("machine", _own_pods(pool_path(machine.pool)[1]))


def unbreakable(machine: Machine, command: BreakMachine) -> Refusal | None:
    """Return why a machine cannot fail in this way; None if it can."""
    if command.fault in WIPE_FAULTS and not machine.wipe_s:
        return Refusal("fault", "must be another one: the machine is not wiped")
    if machine.pool is None or not machine.has_agent or command.fault != "kubelet":
        return None
    cluster = pool_path(machine.pool)[1]
    return Refusal("fault", f"cluster {cluster} has kubelets of its own: stop the one of the Node")


def _own_pods(cluster: str) -> str:
    return f"cluster {cluster} has Pods of its own: use kubectl"


def find_pod_fault(pod: Pod) -> Refusal | None:
    """Return why no Pod can have this spec; None if a Pod can."""
    if reason := grammar.dns1123_subdomain(pod.name):
        return Refusal("pod.name", reason)
    for number, toleration in enumerate(pod.tolerations):
        field = f"pod.tolerations[{number}]"
        if not toleration.key and toleration.operator == "Equal":
            return Refusal(f"{field}.key", "is empty, which only the operator Exists allows")
        if toleration.key and (reason := grammar.qualified_name(toleration.key)):
            return Refusal(f"{field}.key", reason)
        if toleration.value and toleration.operator == "Exists":
            return Refusal(f"{field}.value", "must be empty with the operator Exists")
        if reason := grammar.taint_value(toleration.value):
            return Refusal(f"{field}.value", reason)
    return None


def _too_few_gpus(machine: Machine, pod: Pod) -> Refusal | None:
    left = free(machine)
    names = (("gpus", pod.gpus, left.gpus), ("accelerators", pod.accelerators, left.accelerators))
    for field, asked, rest in names:
        if asked > rest:
            text = f"the Node has {rest} of its {machine.gpus} free, not {asked}"
            return Refusal(f"pod.{field}", text)
    return None


def format_taint(taint: Taint) -> str:
    """Return a taint as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def creating(command: CreatePod, pool: Pool | None) -> Pool | Refusal:
    """Return the NodePool in which this Pod can be created, or why it cannot be created."""
    pod = command.pod
    if refusal := find_pod_fault(pod):
        return refusal
    for field, value in (("daemonSet", pod.daemon_set), ("verification", pod.verification)):
        if value:
            return Refusal(f"pod.{field}", "must be false; RunPod starts such a Pod on its Node")
    if pool is None or not pool.exists:
        return _unknown_pool(command.pool)
    if pool.has_agent:
        return Refusal("cluster", _own_pods(command.cluster))
    if pod.name in pool.pods:
        text = f"Pod {pod.name} exists already in NodePool {command.pool}"
        return Refusal("pod.name", text, "Conflict")
    most = gpus_of(pool.instance_type)
    for field, asked in (("gpus", pod.gpus), ("accelerators", pod.accelerators)):
        if asked > most:
            text = f"a Node of type {pool.instance_type} has {most}, and never {asked}"
            return Refusal(f"pod.{field}", text)
    if len(pool.waiting) >= WAITING_MAX:
        text = f"{WAITING_MAX} Pods wait in NodePool {command.pool} already; try again later"
        return Refusal("pod", text, "TooManyRequests")
    return pool


def deleting(command: DeletePod, pool: Pool | None) -> PoolPod | Refusal:
    """Return the Pod to delete, or why it cannot be deleted."""
    if pool is None or not pool.exists:
        return _unknown_pool(command.pool)
    if pool.has_agent:
        return Refusal("cluster", _own_pods(command.cluster))
    if command.name in pool.pods:
        return pool.pods[command.name]
    text = f"no Pod {command.name} exists in NodePool {command.pool}"
    return Refusal("name", text, "NotFound")


def _unknown_pool(name: str) -> Refusal:
    return Refusal("metadata.name", f"NodePool {name} does not exist", "NotFound")


def not_running(machine: Machine, command: StopPod) -> Refusal | None:
    """Return why this Pod cannot be stopped; None if it runs."""
    if refusal := foreign(machine):
        return refusal
    if not machine.answers:
        return Refusal("machine", "does not answer")
    if command.name in machine.pods:
        return None
    return Refusal("name", f"no Pod {command.name} runs on {command.machine}")
