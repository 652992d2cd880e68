"""What a command to the simulated machines is refused for."""

from dataclasses import dataclass

from fleet.machine import Machine
from nodepool.contract import grammar
from nodepool.contract.affinity import TOPOLOGY_KEYS
from nodepool.contract.catalog import offered, type_fault, zone_fault
from nodepool.contract.commands import AddMachines, StopPod
from nodepool.contract.model import Pod

PODS_MAX = 110
"""The most Pods on a Node, as in https://kubernetes.io/docs/setup/best-practices/cluster-large/."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command is refused: the field at fault, and one sentence."""

    field: str
    message: str


def unfit(command: AddMachines) -> Refusal | None:
    """Why these machines cannot be added; None where they can."""
    if reason := type_fault(command.instance_type):
        return Refusal("instanceType", reason)
    if reason := zone_fault(command.zone):
        return Refusal("zone", reason)
    if not offered(command.instance_type, command.zone):
        return Refusal("zone", f"{command.instance_type} is not offered in {command.zone}")
    for key, value in command.labels.items():
        if key not in TOPOLOGY_KEYS:
            return Refusal(f"labels[{key[:100]}]", "is not a topology label of machines")
        if reason := grammar.label_value(value):
            return Refusal(f"labels[{key}]", reason)
    return None


def unschedulable(machine: Machine, pod: Pod) -> Refusal | None:
    """Why this Pod cannot run on this machine; None where it can."""
    if reason := grammar.dns1123_subdomain(pod.name):
        return Refusal("pod.name", reason)
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
    if pod.name in machine.pods:
        return Refusal("pod.name", f"{pod.name} runs there already")
    if len(machine.pods) >= PODS_MAX:
        return Refusal("machine", f"runs {PODS_MAX} Pods already")
    return None


def not_running(machine: Machine, command: StopPod) -> Refusal | None:
    """Why this Pod cannot be stopped; None where it runs."""
    if not machine.answers:
        return Refusal("machine", "does not answer")
    if command.name in machine.pods:
        return None
    return Refusal("name", f"no Pod {command.name} runs on {command.machine}")
