"""Rules for machines: no Node leaves with Pods that were not observed."""

from datetime import timedelta

from nodepool.contract.events import (
    MachineAdded,
    MachineBooted,
    MachineFailed,
    MachineRepaired,
    MachineStateChanged,
    MachineWiped,
    NodeObserved,
    NodeReported,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePhase
from nodepool.contract.node_states import MachineState
from nodepool.contract.pods import PodClass
from support.audit.facts import RECLAIMED, TRIAGE, ZAP, Facts, Machine, Origin, Violation


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes a report of a machine."""
    match message:
        case MachineAdded():
            _added(facts, message, origin)
        case MachineRepaired():
            machine = facts.machines[message.machine_key]
            if machine.holder == TRIAGE:
                machine.hold("", origin.position)
            elif machine.holder == RECLAIMED:
                machine.taken_out = 0
        case MachineStateChanged():
            _moved(facts.machines[message.machine_key], message, origin)
        case MachineWiped():
            _wiped(facts.machines[message.machine_key], message, origin)
        case MachineBooted():
            facts.reported_stay(message, message.assignment).booted = True
        case MachineFailed(boot=0):
            facts.reported_stay(message, message.assignment).failed = True
        case NodeObserved() | NodeReported():
            _observed(facts, message, origin)


def _moved(machine: Machine, message: MachineStateChanged, origin: Origin) -> None:
    has_failed = machine.holder == ZAP and message.state is MachineState.ZAP_FAIL
    was_free = not machine.holder and machine.assignment == message.assignment
    if has_failed or (was_free and message.state is MachineState.TRIAGE):
        machine.hold(TRIAGE, origin.position)
    elif machine.holder == RECLAIMED and message.state is MachineState.TRIAGE:
        machine.taken_out = origin.position


def _wiped(machine: Machine, message: MachineWiped, origin: Origin) -> None:
    if machine.holder not in (ZAP, TRIAGE) or machine.assignment != message.assignment:
        raise Violation(f"{message.machine_key} is wiped while {machine.holder} holds it")
    machine.unwiped = False
    machine.hold("" if machine.holder == ZAP else machine.holder, origin.position)


def _added(facts: Facts, message: MachineAdded, origin: Origin) -> None:
    labels = dict(message.labels)
    machine = Machine(message.zone, message.instance_type, labels, wipes=message.wipes)
    machine.unwiped = message.unwiped
    machine.hold("", origin.position)
    facts.machines[message.machine_key] = machine


def _observed(facts: Facts, message: NodeObserved | NodeReported, origin: Origin) -> None:
    stay = facts.reported_stay(message, message.assignment)
    pods = [pod for pod in message.pods if not (pod.daemon_set or pod.verification)]
    working = bool(pods)
    if stay.phase == NodePhase.REBOOTING and isinstance(message, NodeObserved):
        working = False  # They end with the reboot; in a Kubernetes cluster they run again.
    if working and stay.phase == NodePhase.DELETED and not (stay.overdue or stay.was_forced):
        raise Violation(f"{stay.machine} runs Pods that were not observed before it was deleted")
    stay.working = working
    if message.unschedulable and message.cordon == stay.cordon:
        stay.answered.add(origin.position, True)
    stay.reported = stay.reported or isinstance(message, NodeReported)
    # A simulated machine has to answer a drain first; an agent may have nothing new to report.
    has_grace = stay.reported or all(pod.terminating for pod in pods)
    grace_s = [pod.grace_s for pod in pods if pod.interruption is not PodClass.INTERRUPTABLE]
    grace = timedelta(seconds=max(grace_s, default=0) if has_grace else 0)
    stay.grace.add(origin.position, grace)
