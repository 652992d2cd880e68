"""The state of the metal service: each real machine that is declared, or was added."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import assert_never

from immutables import Map

from metal import Hears, Says
from metal.declaring import read_declaration
from metal.machine import Machine, Stay
from metal.names import (
    Names,
    Serials,
    compare_names,
    note_declaration,
    note_service,
    serial_of,
)
from metal.observing import Seeing, fold_decision, fold_report, move_machine, observe
from metal.power import find_stuck, forgets_at, restart_tries, retries_at
from metal.stays import OfStay, begin_stay, begin_wipe, fold_stay, hand_over, note_wait
from metal.turns import Turns, find_next, note_turn
from nodepool.contract import events as on
from nodepool.contract.catalog import provider_of
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower, VerifyMachine
from nodepool.contract.events import (
    ControllerReported,
    ControllerSilent,
    MachineCheckRequested,
    MachineConditionChanged,
    MachineDeclared,
    MachineMaintenanceChanged,
    MachinePowerWished,
    MachineUndeclared,
    PowerAnswered,
    PowerOverdue,
    PowerRequested,
    WipeEnded,
)
from nodepool.contract.keys import (
    ClusterKey,
    MachineKey,
    cluster_key,
    cluster_of,
    machine_parts,
)
from nodepool.contract.messages import OfMachine, OfNode
from nodepool.contract.real_machines import PROVIDER
from nodepool.service import Context
from nodepool.state.values import replace
from nodepool.state.work import WithWork


@dataclass(frozen=True, slots=True)
class State(WithWork[MachineKey]):
    """The machines; the work queue holds each machine when something of it is due.

    agents: the clusters that an agent connects to Kubernetes.
    serials: the names of the machine with each serial number, in lower case.
    turns: the wipes of each zone.
    """

    agents: Map[ClusterKey, bool] = Map()
    machines: Map[MachineKey, Machine] = Map()
    serials: Serials = Map()
    turns: Map[str, Turns] = Map()

    def has_agent(self, stay: Stay) -> bool:
        """Return whether an agent reports the Node of a stay."""
        return cluster_of(stay.pool) in self.agents


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message; one about an unknown machine changes nothing."""
    now = context.time
    match message:
        case SetMachinePower() | MaintainMachine() | VerifyMachine():
            return state
        case on.ClusterRegistered():
            return _fold_registration(state, message, now)
        case MachineDeclared():
            return _declare(state, message, context)
        case on.CWNodeAssigned():
            return _change(state, message, now, partial(begin_stay, event=message, now=now))
        case on.CWNodeRegistered() | on.CWNodeRegistrationFailed() | on.CWNodeDeleted():
            return _change_stay(state, message, now)
        case on.NodeUpdated() | on.CWDrainNode() | on.NodeReportRequested():
            return _change_stay(state, message, now)
        case MachineUndeclared() | ControllerReported() | ControllerSilent():
            return _observe(state, message, now)
        case PowerAnswered() | WipeEnded():
            return _observe(state, message, now)
        case PowerRequested() | PowerOverdue() | MachineCheckRequested() | MachinePowerWished():
            return _change(state, message, now, partial(fold_decision, event=message, now=now))
        case MachineMaintenanceChanged() | MachineConditionChanged():
            return _change(state, message, now, partial(fold_decision, event=message, now=now))
        case on.MachineAdded() | on.MachineRepaired() | on.MachineStateChanged():
            return _change(state, message, now, partial(move_machine, event=message))
        case on.MachineWiped():
            return _change(state, message, now, partial(move_machine, event=message))
        case on.MachineBooted() | on.MachineFailed() | on.NodeVerified():
            return _change(state, message, now, partial(fold_report, event=message))
        case on.NodeConditionChanged() | on.NodeObserved():
            return _change(state, message, now, partial(fold_report, event=message))
        case on.MachineUpdateFailed(machine_key=key):
            return replace(state, work=state.work.retry_later(key, now))
        case _:
            assert_never(message)


def _change(
    state: State,
    message: OfMachine | OfNode,
    now: datetime,
    change: Callable[[Machine], Machine],
) -> State:
    """Return the state with the machine changed that a message is about; ignore an unknown one."""
    key = message.machine_key
    machine = state.machines.get(key)
    return state if machine is None else _store(state, key, change(machine), now)


def _change_stay(state: State, message: OfStay, now: datetime) -> State:
    """Return the state after a message about a stay; ignore one about another stay."""
    machine = state.machines.get(message.machine_key)
    stay = machine.stay if machine is not None else None
    if machine is None or stay is None or stay.assignment != message.assignment:
        return state
    after = fold_stay(machine, stay, message, now, has_agent=state.has_agent(stay))
    return _store(state, message.machine_key, after, now)


def _observe(state: State, message: Seeing, now: datetime) -> State:
    """Return the state after what the driver has observed of a machine."""
    machine = state.machines.get(message.machine_key)
    if machine is None:
        return state
    has_agent = machine.stay is not None and state.has_agent(machine.stay)
    after = observe(machine, message, now, has_agent=has_agent)
    return _store(state, message.machine_key, after, now)


def _declare(state: State, event: MachineDeclared, context: Context) -> State:
    """Return the state with a machine as it is declared; a reading of another one is forgotten."""
    if provider_of(event.zone) != PROVIDER:
        return state
    machine = state.machines.get(event.machine_key, Machine())
    before = machine.declared
    if before is None or before.digest != event.digest:
        # It may be another machine, which has not booted what is under way: a wipe, or a Node.
        stay = machine.stay
        is_booting = machine.wipe_due is not None or (stay is not None and not stay.outcome)
        runs_for = None if is_booting else machine.runs_for
        machine = replace(machine, seen=None, silence="", runs_for=runs_for, wipe_end=None)
        machine = restart_tries(machine)
    if machine.added_type and not machine.added_serial:
        machine = replace(machine, added_serial=event.serial)
    if event.machine_key not in state.machines:
        machine = replace(machine, declaration=context.position)
    machine = replace(machine, declared=read_declaration(event))
    return _store(state, event.machine_key, machine, context.time)


def _fold_registration(state: State, event: on.ClusterRegistered, now: datetime) -> State:
    cluster = cluster_key(event.org, event.cluster)
    if not event.kubernetes or cluster in state.agents:
        return state
    state = replace(state, agents=state.agents.set(cluster, True))
    for key, machine in state.machines.items():
        stay = machine.stay
        if stay is not None and cluster_of(stay.pool) == cluster:
            state = _store(state, key, hand_over(machine, stay), now)
    return state


def _store(state: State, key: MachineKey, machine: Machine, now: datetime) -> State:
    """Return the state with a machine, and with what follows for its names and for wipes."""
    before = state.machines.get(key, Machine())
    state = _put(state, key, machine, now)
    state = _note(state, note_declaration(state.serials, key, before, machine))
    state = _compare(state, key, now)
    state = _note(state, note_service(state.serials, key, state.machines[key]))
    names = state.serials.get(machine.added_serial.casefold())
    if names is not None and names.declared not in ("", key):
        state = _compare(state, names.declared, now)
    return _give_turns(state, now)


def _note(state: State, serials: Serials) -> State:
    return state if serials is state.serials else replace(state, serials=serials)


def _compare(state: State, key: MachineKey, now: datetime) -> State:
    """Return the state in which a machine knows what holds it under the name it had before."""
    machine = state.machines[key]
    last = state.serials.get(serial_of(machine), Names()).last or key
    after = compare_names(key, machine, last, state.machines[last])
    if after is machine:
        return state
    state = _put(state, key, after, now)
    return replace(state, work=state.work.put(key))


def _put(state: State, key: MachineKey, machine: Machine, now: datetime) -> State:
    """Return the state with a machine and with its next moment."""
    machine = note_wait(machine, now)
    due = _find_due(machine, now)
    work = state.work.drop(key) if due is None else state.work.clear_failures(key).put_at(key, due)
    machines, turns = state.machines.set(key, machine), _note_turn(state.turns, key, machine)
    return replace(state, machines=machines, turns=turns, work=work)


def _note_turn(turns: Map[str, Turns], key: MachineKey, machine: Machine) -> Map[str, Turns]:
    zone, _ = machine_parts(key)
    before = turns.get(zone, Turns())
    after = note_turn(before, key, machine)
    return turns if after is before else turns.set(zone, after)


def _give_turns(state: State, now: datetime) -> State:
    """Return the state in which each machine is wiped whose turn has come."""
    for zone in state.turns:
        while (key := find_next(state.turns[zone])) is not None:
            machine = state.machines[key]
            state = _put(state, key, begin_wipe(machine, now, machine.wipe + 1), now)
            state = replace(state, work=state.work.put(key))
    return state


def _find_due(machine: Machine, now: datetime) -> datetime | None:
    """Return the next moment at which a machine has something to say by itself; None for never.

    A moment at which the machine has nothing to say must not be returned: later ones would be lost.
    """
    request, check, stay = machine.request, machine.check, machine.stay
    moments = [retries_at(machine, now), machine.wipe_due, machine.wait_due]
    moments.append(request.due if request is not None else None)
    moments.append(check.due if check is not None and check.purpose == "verify" else None)
    if stay is not None:
        moments.append(None if stay.outcome else stay.boot_due)
        moments.append(stay.unknown_at)
    if find_stuck(machine, now):
        moments.append(forgets_at(machine))
    return min((each for each in moments if each is not None), default=None)
