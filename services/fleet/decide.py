"""A simulated data centre: machines that boot, join, run Pods, drain, and fail when told to."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from immutables import Map
from nodepool.state.persistent import Deadlines

from nodepool.contract import grammar
from nodepool.contract.affinity import TOPOLOGY_KEYS
from nodepool.contract.catalog import INSTANCE_TYPES, offered
from nodepool.contract.commands import AddMachines, BreakMachine, RepairMachine, RunPod, StopPod
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineBooted,
    MachineFailed,
    MachineRepaired,
    NodeObserved,
    NodeUpdated,
    Wake,
)
from nodepool.contract.messages import Message, path_fields
from nodepool.contract.model import Pod, PodClass
from nodepool.service import Context, Failure, Service, refused
from nodepool.state.receipts import Receipts

FleetCommand = AddMachines | BreakMachine | RepairMachine | RunPod | StopPod
Hears = (
    AddMachines
    | BreakMachine
    | RepairMachine
    | RunPod
    | StopPod
    | CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeUpdated
    | CWDrainNode
    | CWNodeDeleted
    | Wake
)
Says = (
    CommandAccepted
    | CommandRefused
    | MachineAdded
    | MachineRepaired
    | MachineBooted
    | MachineFailed
    | NodeObserved
)

DUE_MAX = 400
"""How many boots and Pod ends one decision reports; the next `Wake` goes on."""
PODS_MAX = 110
"""The most Pods on a Node (the documented maxPods)."""
SCATTER = 0x9E3779B1
"""Odd, so that multiplying by it maps the first 2**24 numbers to 2**24 different names."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: how it boots, the stay it is in, and what runs on it.

    `fault` is how it fails the next `fault_times` times that it boots, `failing` how it fails this
    time; `cordon` counts the cordons it heard of, `reported` is the cordon as it was observed last.
    """

    boot_s: float
    fault: str = ""
    fault_times: int = 0
    fault_cause: str = ""
    failing: str = ""
    assignment: int = 0
    joined: bool = False
    unschedulable: bool = False
    cordon: int = 0
    reported: bool = False
    pods: Map[str, Pod] = Map()


@dataclass(frozen=True, slots=True)
class State:
    """Machines by `zone/machine`; when boots end (`zone/machine`) and Pods are killed (`…/pod`)."""

    machines: Map[str, Machine] = Map()
    deadlines: Deadlines = Deadlines()
    receipts: Receipts = Receipts()


def wakes(state: State) -> datetime | None:
    """The next moment at which a machine is up or a Pod's grace period is over."""
    return state.deadlines.next()


def evolve(state: State, message: Message, now: Context) -> State:
    """Folds what the house decided and what the machines reported."""
    match message:
        case CommandAccepted() | CommandRefused():
            return replace(state, receipts=state.receipts.put(now.id, message))
        case MachineAdded(machine_key=key):
            machine = Machine(message.boot_seconds)
            return replace(state, machines=state.machines.set(key, machine))
        case BreakMachine(machine_key=key) if _first_time(state, key, message, now):
            return _changed(
                state,
                key,
                fault=message.fault,
                fault_times=message.times,
                fault_cause=message.cause,
            )
        case CWNodeAssigned():
            return _powered(state, message, now)
        case CWNodeRegistered():
            return _stay(state, message, joined=True)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _off(state, message)
        case NodeUpdated(unschedulable=unschedulable, cordon=cordon):
            return _stay(state, message, unschedulable=unschedulable, cordon=cordon)
        case CWDrainNode():
            return _drained(state, message, now)
        case MachineBooted(machine_key=key) | MachineFailed(machine_key=key):
            return replace(state, deadlines=state.deadlines.drop(key))
        case NodeObserved():
            return _seen(state, message)
    return state


def _first_time(state: State, key: str, command: BreakMachine, now: Context) -> bool:
    """Whether a known machine is to break for a command that was not taken before."""
    return key in state.machines and state.receipts.again(command, now.id) is None


def _changed(state: State, key: str, **changes: object) -> State:
    machine = replace(state.machines[key], **changes)  # type: ignore[arg-type]
    return replace(state, machines=state.machines.set(key, machine))


def _machine(state: State, key: str, assignment: int) -> Machine | None:
    machine = state.machines.get(key)
    return machine if machine is not None and machine.assignment == assignment else None


Stay = CWNodeRegistered | NodeUpdated | CWDrainNode | CWNodeDeleted | CWNodeRegistrationFailed


def _stay(state: State, said: Stay, **changes: object) -> State:
    key = f"{said.zone}/{said.node}"
    if _machine(state, key, said.assignment) is None:
        return state
    return _changed(state, key, **changes)


def _powered(state: State, said: CWNodeAssigned, now: Context) -> State:
    key = f"{said.zone}/{said.node}"
    machine = state.machines.get(key)
    if machine is None:
        return state
    state = _changed(
        state,
        key,
        assignment=said.assignment,
        joined=False,
        unschedulable=False,
        cordon=0,
        reported=False,
        pods=Map(),
        failing=machine.fault if machine.fault_times else "",
        fault_times=max(0, machine.fault_times - 1),
    )
    if not machine.boot_s or state.machines[key].failing == "silence":
        return state
    up = now.time + timedelta(seconds=machine.boot_s)
    return replace(state, deadlines=state.deadlines.put(key, up))


def _off(state: State, said: CWNodeDeleted | CWNodeRegistrationFailed) -> State:
    key = f"{said.zone}/{said.node}"
    machine = _machine(state, key, said.assignment)
    if machine is None:
        return state
    deadlines = state.deadlines.drop(key)
    for pod in machine.pods:
        deadlines = deadlines.drop(f"{key}/{pod}")
    state = _stay(state, said, joined=False, unschedulable=False, reported=False, pods=Map())
    return replace(state, deadlines=deadlines)


def _seen(state: State, said: NodeObserved) -> State:
    key, pods = said.machine_key, Map((pod.name, pod) for pod in said.pods)
    deadlines = state.deadlines
    for name in state.machines[key].pods:
        if name not in pods:
            deadlines = deadlines.drop(f"{key}/{name}")
    state = _changed(state, key, pods=pods, reported=said.unschedulable)
    return replace(state, deadlines=deadlines)


def _drained(state: State, said: CWDrainNode, now: Context) -> State:
    """Interruptable Pods end at once; graceful ones, and all where forced, after their grace."""
    key = f"{said.zone}/{said.node}"
    machine = _machine(state, key, said.assignment)
    if machine is None:
        return state
    pods, deadlines = machine.pods, state.deadlines
    for name in sorted(machine.pods):
        pod = machine.pods[name]
        if pod.daemon_set or pod.terminating:
            continue
        if pod.interruption is PodClass.INTERRUPTABLE:
            pods = pods.delete(name)
        elif pod.interruption is PodClass.GRACEFUL or said.force:
            pods = pods.set(name, pod.model_copy(update={"terminating": True}))
            deadlines = deadlines.put(f"{key}/{name}", now.time + timedelta(seconds=pod.grace_s))
    return replace(_changed(state, key, pods=pods), deadlines=deadlines)


def _parts(due: str) -> tuple[str, str]:
    zone, machine, *pod = due.split("/", 2)
    return f"{zone}/{machine}", pod[0] if pod else ""


def decide(state: State, message: Message, now: Context) -> Iterator[Says]:
    """What the machines report, and what becomes of the commands to them."""
    match message:
        case AddMachines() | BreakMachine() | RepairMachine() | RunPod() | StopPod():
            outcome = state.receipts.again(message, now.id)
            if outcome is not None:
                yield outcome
            else:
                yield from _ask(state, message)
        case CWNodeAssigned():
            key = f"{message.zone}/{message.node}"
            machine = state.machines.get(key)
            if machine is not None and not machine.boot_s:
                yield from _boot(key, machine)
        case NodeUpdated() | CWDrainNode():
            key = f"{message.zone}/{message.node}"
            machine = _machine(state, key, message.assignment)
            drains = isinstance(message, CWDrainNode)
            if machine is None or not machine.joined:
                return
            if drains or machine.unschedulable != machine.reported:
                yield _observed(key, machine)
        case Wake():
            yield from _wake(state, now)


def _wake(state: State, now: Context) -> Iterator[Says]:
    ended: dict[str, Map[str, Pod]] = {}
    for due in state.deadlines.due(now.time, DUE_MAX):
        key, pod = _parts(due)
        if pod:
            ended[key] = ended.get(key, state.machines[key].pods).delete(pod)
        else:
            yield from _boot(key, state.machines[key])
    for key, pods in ended.items():
        yield _observed(key, replace(state.machines[key], pods=pods))


def _boot(key: str, machine: Machine) -> Iterator[Says]:
    zone, name = key.split("/")
    match machine.failing:
        case "silence":
            return
        case "boot" | "registration":
            did = "did not boot" if machine.failing == "boot" else "was turned away at registration"
            cause = f"the machine {did}" + (
                f": {machine.fault_cause}" if machine.fault_cause else ""
            )
            yield MachineFailed(zone=zone, machine=name, assignment=machine.assignment, cause=cause)
        case _:
            yield MachineBooted(zone=zone, machine=name, assignment=machine.assignment)


def _observed(key: str, machine: Machine) -> NodeObserved:
    zone, name = key.split("/")
    return NodeObserved(
        zone=zone,
        machine=name,
        assignment=machine.assignment,
        unschedulable=machine.unschedulable,
        cordon=machine.cordon,
        pods=tuple(machine.pods[pod] for pod in sorted(machine.pods)),
    )


def _ask(state: State, message: FleetCommand) -> Iterator[Says]:
    fault = _fault(state, message)
    if fault is not None:
        field, told = fault
        yield CommandRefused(
            **path_fields(message),
            command=type(message).__name__,
            reason="Invalid",
            field=field,
            message=told,
        )
        return
    yield _accepted(message)
    match message:
        case AddMachines():
            yield from _added(state, message)
        case RepairMachine():
            yield MachineRepaired(zone=message.zone, machine=message.machine)
        case RunPod(machine_key=key, pod=pod):
            machine = state.machines[key]
            pod = pod.model_copy(update={"terminating": False})
            yield _observed(key, replace(machine, pods=machine.pods.set(pod.name, pod)))
        case StopPod(machine_key=key, name=name):
            machine = state.machines[key]
            yield _observed(key, replace(machine, pods=machine.pods.delete(name)))


def _fault(state: State, message: FleetCommand) -> tuple[str, str] | None:
    if isinstance(message, AddMachines):
        return _unfit(message)
    machine = state.machines.get(message.machine_key)
    if machine is None:
        return "machine", f"{message.machine_key} is not a known machine"
    match message:
        case RunPod(pod=pod):
            return _unschedulable(machine, pod)
        case StopPod(name=name) if name not in machine.pods:
            return "name", f"no Pod {name} runs on {message.machine}"
    return None


def _unfit(message: AddMachines) -> tuple[str, str] | None:
    if message.instance_type not in INSTANCE_TYPES:
        return "instanceType", f"{message.instance_type} is not a known instance type"
    if not offered(message.instance_type, message.zone):
        return "zone", f"{message.instance_type} is not offered in {message.zone}"
    for key, value in message.labels.items():
        if key not in TOPOLOGY_KEYS:
            return f"labels[{key[:100]}]", "is not a topology label of machines"
        if reason := grammar.label_value(value):
            return f"labels[{key}]", reason
    return None


def _unschedulable(machine: Machine, pod: Pod) -> tuple[str, str] | None:
    if reason := grammar.dns1123_subdomain(pod.name):
        return "pod.name", reason
    if not machine.joined:
        return "machine", "is not a Node of any cluster"
    if machine.unschedulable and not pod.daemon_set:
        return "machine", "is cordoned"
    if pod.name in machine.pods:
        return "pod.name", f"{pod.name} runs there already"
    if len(machine.pods) >= PODS_MAX:
        return "machine", f"runs {PODS_MAX} Pods already"
    return None


def _added(state: State, message: AddMachines) -> Iterator[MachineAdded]:
    first = len(state.machines) + 1
    for number in range(first, first + message.count):
        yield MachineAdded(
            zone=message.zone,
            machine=f"g{number * SCATTER & 0xFFFFFF:06x}",
            instance_type=message.instance_type,
            labels=message.labels,
            boot_seconds=message.boot_seconds,
        )


def _accepted(message: FleetCommand) -> CommandAccepted:
    return CommandAccepted(**path_fields(message), command=type(message).__name__, result="done")


def on_failure(failure: Failure) -> Iterable[Says]:
    """A command that cannot be taken is refused."""
    if failure.is_command:
        yield refused(failure)


SERVICE = Service(
    name="fleet",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    wakes=wakes,
    on_failure=on_failure,
)
