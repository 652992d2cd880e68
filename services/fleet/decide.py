"""The events of the fleet service: the outcomes of commands, and the reports of the machines."""

from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import assert_never

from fleet import Decides, Hears, Says
from fleet.boot import break_machine, is_node, report, report_reboot, shows, verification
from fleet.conditions import (
    SILENT_AFTER_S,
    as_node_fault,
    heartbeats_stopped,
    next_fault,
    problem_begun,
    problems_ended,
)
from fleet.failures import on_failure
from fleet.machine import Machine, name_of
from fleet.pods import observe_node, surviving
from fleet.pool_pods import complete_pod, create, delete
from fleet.refusal import (
    Refusal,
    find_foreign_zone,
    not_running,
    unbreakable,
    unfit,
    unschedulable,
)
from fleet.scheduling import end_pods, missing
from fleet.silence import answer, found_silent, time_silences, types_ended
from fleet.state import State, evolve
from fleet.triage import move
from fleet.wipes import report_wipe
from nodepool.contract import events as on
from nodepool.contract.catalog import rack_size
from nodepool.contract.commands import (
    AddMachines,
    BreakMachine,
    CreatePod,
    DeletePod,
    RepairMachine,
    RunPod,
    StopPod,
)
from nodepool.contract.keys import MachineKey, PoolKey
from nodepool.contract.messages import Command
from nodepool.contract.node_states import MachineState
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.placement.racks import NVLINK_DOMAIN
from nodepool.service import Context, Reconciler, Service, decide_on


def decide(
    state: State, message: Decides, context: Context, *, silent_after_s: float = SILENT_AFTER_S
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command and its events, or the events that follow from an event."""
    yield from time_silences(_decide_message(state, message, context), silent_after_s)


def _decide_message(
    state: State, message: Decides, context: Context
) -> Iterator[Says | CommandOutcome]:
    match message:
        case AddMachines():
            yield from _add(state, message)
        case BreakMachine() | RepairMachine() | RunPod() | StopPod():
            yield from _command(state, message)
        case CreatePod():
            yield from create(state, message, context)
        case DeletePod():
            yield from delete(state, message, context)
        case on.NodeUpdated() | on.CWDrainNode():
            yield from _end_placed_pods(state, message)
            yield from _observe(state, message)
        case on.CWNodeDeleted():
            yield from _end_placed_pods(state, message)
        case on.CWNodeRegistered():
            yield from _report_first_problem(state, message)
        case on.NodeReportRequested(machine_key=key):
            machine = state.machine_of(message)
            if machine is not None:
                yield from answer(key, machine)
        case _:
            assert_never(message)


def reconcile(
    state: State, key: MachineKey | PoolKey, context: Context, *, silent_after_s: float
) -> Generator[Says, State, None]:
    """Yield the events that are missing for the Pods of a NodePool, or for a machine."""
    yield from time_silences(_missing(state, key, context), silent_after_s)


def _missing(state: State, key: MachineKey | PoolKey, context: Context) -> Iterator[Says]:
    pool, machine = PoolKey(key), MachineKey(key)
    if pool in state.pools:
        yield from missing(pool, state.pools[pool], state.machines)
    elif machine in state.machines:
        yield from _due(machine, state.machines[machine], context)


def _due(key: MachineKey, machine: Machine, context: Context) -> Iterator[Says]:
    """Yield the events that are due for a machine: triage, wipe, boot, verification, and so on."""
    now = context.time
    if machine.moves_at is not None and machine.moves_at <= now:
        yield from move(key, machine)
    if machine.wiped_at is not None and machine.wiped_at <= now:
        yield report_wipe(key, machine)
    yield from found_silent(key, machine, now)
    if machine.boots_at is not None and machine.boots_at <= now:
        if machine.restarting:
            yield from report_reboot(key, machine)
        else:
            yield report(key, machine)
        return
    if machine.verified_at is not None and machine.verified_at <= now and machine.answers:
        yield verification(key, machine)
    is_failing = machine.fails_at is not None and machine.fails_at <= now
    if is_failing and is_node(machine) and machine.failing != "hang":
        yield from problem_begun(key, machine, next_fault(key, machine))
    pods = surviving(machine, now)
    is_unobserved = machine.joined and not machine.is_observed
    if machine.answers and (is_unobserved or len(pods) < len(machine.pods)):
        yield observe_node(key, machine, pods)


def concerns(_state: State, message: Hears) -> MachineKey | None:
    """Return an assigned machine, so that it reports a boot without duration in the same step."""
    match message:
        case on.CWNodeAssigned(machine_key=key):
            return key
        case _:
            return None


def _add(state: State, command: AddMachines) -> Iterator[Says | CommandOutcome]:
    refusal = unfit(command)
    if refusal is not None:
        yield _refuse_command(command, refusal)
        return
    yield build_acceptance(command, "done")
    first = len(state.machines) + 1
    for number in range(first, first + command.count):
        yield on.MachineAdded(
            zone=command.zone,
            machine=name_of(number),
            instance_type=command.instance_type,
            labels=_labels(command, number - first, first),
            boot_seconds=command.boot_seconds,
            verify_seconds=command.verify_seconds,
            failures_per_day=command.failures_per_day,
            repair_seconds=command.repair_seconds,
            seed=command.seed,
            wipes=command.wipe_seconds > 0,
            wipe_seconds=command.wipe_seconds,
        )


def _labels(command: AddMachines, number: int, first: int) -> Mapping[str, str]:
    """Return the labels of an added machine.

    number: the index of the machine among those added, from 0.
    first: the number of the first machine added.
    """
    if not command.in_racks:
        return command.labels
    size = rack_size(command.instance_type)
    rack = first + number // size * size
    return {**command.labels, NVLINK_DOMAIN: f"NVL-{rack:05}-{command.zone}"}


def _command(
    state: State, command: BreakMachine | RepairMachine | RunPod | StopPod
) -> Iterator[Says | CommandOutcome]:
    key = command.machine_key
    machine = state.machines.get(key)
    if machine is None:
        unknown = Refusal("machine", f"{key} is not a known machine")
        yield _refuse_command(command, find_foreign_zone(command.zone) or unknown)
        return
    match command:
        case BreakMachine():
            yield from _break(key, machine, command)
        case RepairMachine() if machine.state in (MachineState.PRODUCTION, MachineState.ZAP):
            yield build_acceptance(command, "unchanged")
        case RepairMachine():
            yield build_acceptance(command, "done")
            yield on.MachineRepaired(zone=command.zone, machine=command.machine)
        case RunPod():
            yield from _run(state, key, machine, command)
        case StopPod():
            yield from _stop(state, key, machine, command)
        case _:
            assert_never(command)


def _break(
    key: MachineKey, machine: Machine, command: BreakMachine
) -> Iterator[Says | CommandOutcome]:
    """Yield the outcome, the fault and its effects; a Node that answers again is observed."""
    if refusal := unbreakable(machine, command):
        yield _refuse_command(command, refusal)
        return
    yield build_acceptance(command, "done")
    event = on.MachineBroken(
        zone=command.zone,
        machine=command.machine,
        fault=command.fault,
        times=command.times,
        cause=command.cause,
    )
    yield event
    fault = as_node_fault(command.fault)
    after = break_machine(machine, event)
    if is_node(machine) and not command.times:
        yield from problems_ended(key, machine, *types_ended(after, command.fault))
    elif fault is not None and shows(machine, fault):
        yield from problem_begun(key, after, fault)
    elif after.joined and after.failing == "hang" != machine.failing:
        yield from heartbeats_stopped(key, after)
    if not machine.answers and after.answers and not machine.has_agent:
        yield observe_node(key, machine, machine.pods)


def _report_first_problem(state: State, message: on.CWNodeRegistered) -> Iterator[Says]:
    """Yield the problem that a Node has from the start."""
    machine = state.machine_of(message)
    fault = as_node_fault(machine.failing) if machine is not None else None
    if machine is not None and machine.failing == "hang":
        yield from heartbeats_stopped(message.machine_key, machine)
    if machine is not None and fault is not None:
        yield from problem_begun(message.machine_key, machine, fault)


def _run(
    state: State, key: MachineKey, machine: Machine, command: RunPod
) -> Iterator[Says | CommandOutcome]:
    refusal = unschedulable(key, machine, state.pool_of(machine), command.pod)
    if refusal is not None:
        yield _refuse_command(command, refusal)
        return
    yield build_acceptance(command, "done")
    pod = command.pod.model_copy(update={"terminating": False})
    yield observe_node(key, machine, machine.pods.set(pod.name, pod))


def _stop(
    state: State, key: MachineKey, machine: Machine, command: StopPod
) -> Iterator[Says | CommandOutcome]:
    refusal = not_running(machine, command)
    if refusal is not None:
        yield _refuse_command(command, refusal)
        return
    yield build_acceptance(command, "done")
    yield from complete_pod(state, key, machine, command.name)
    yield observe_node(key, machine, machine.pods.delete(command.name))


def _end_placed_pods(
    state: State, message: on.NodeUpdated | on.CWDrainNode | on.CWNodeDeleted
) -> Iterator[Says]:
    """Yield the Pods of the NodePool that end because of this message about their Node."""
    pool = state.pools.get(message.key)
    if pool is not None:
        yield from end_pods(message.key, pool, state.machines, message.machine_key)


def _observe(state: State, message: on.NodeUpdated | on.CWDrainNode) -> Iterator[Says]:
    """Yield the Node as it is now, after a drain or if its marks were not observed yet."""
    machine = state.machine_of(message)
    if machine is not None and machine.joined and machine.answers and not machine.is_observed:
        yield observe_node(message.machine_key, machine, machine.pods)


def _refuse_command(command: Command, refusal: Refusal) -> on.CommandRefused:
    return build_refusal(command, refusal.field, refusal.message)


def service(silent_after_s: float) -> Service[State, Hears, Says]:
    """Return the fleet service, whose Nodes get Ready=Unknown after a silence of this duration."""
    return Service(
        name="fleet",
        hears=Hears,
        says=Says,
        initial=State(),
        evolve=evolve,
        decide=decide_on(Decides, partial(decide, silent_after_s=silent_after_s)),
        reconciler=Reconciler(partial(reconcile, silent_after_s=silent_after_s), concerns),
        on_failure=on_failure,
    )


SERVICE: Service[State, Hears, Says] = service(SILENT_AFTER_S)
