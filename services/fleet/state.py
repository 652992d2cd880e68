"""The state of the fleet service: the simulated machines."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import assert_never

from immutables import Map

from fleet import Hears, Says
from fleet.boot import booted, broken, in_phase, powered_off, powered_on, restarted
from fleet.conditions import fails_at
from fleet.machine import Machine
from fleet.pods import drained, with_pods
from nodepool.contract.commands import AddMachines, BreakMachine, RepairMachine, RunPod, StopPod
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineBooted,
    MachineBroken,
    MachineFailed,
    MachineRepaired,
    NodeConditionChanged,
    NodeObserved,
    NodeUpdated,
    NodeVerified,
)
from nodepool.contract.health import is_problem
from nodepool.contract.keys import MachineKey
from nodepool.contract.messages import OfNode
from nodepool.contract.model import NodePhase
from nodepool.service import Context
from nodepool.state.work import WithWork


@dataclass(frozen=True, slots=True)
class State(WithWork[MachineKey]):
    """The machines; the work queue holds each when its boot or a grace period is over."""

    machines: Map[MachineKey, Machine] = Map()

    def machine_of(self, node: OfNode) -> Machine | None:
        """The machine of a Node, if it is still in the stay that the message is about."""
        machine = self.machines.get(node.machine_key)
        return machine if machine is not None and machine.assignment == node.assignment else None


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """The state after a message."""
    match message:
        case MachineAdded(machine_key=key):
            return _stored(state, key, added(message))
        case MachineBroken(machine_key=key):
            return _stored(state, key, broken(state.machines[key], message))
        case CWNodeAssigned(machine_key=key, assignment=assignment):
            machine = state.machines.get(key)
            if machine is None:
                return state
            return _stored(state, key, powered_on(machine, assignment, context.time))
        case CWNodeRegistered():
            return _in_stay(state, message, partial(joined, event=message, now=context.time))
        case NodeUpdated():
            return _in_stay(state, message, partial(instructed, event=message, now=context.time))
        case CWDrainNode(force=force):
            return _in_stay(
                state, message, lambda machine: drained(machine, context.time, force=force)
            )
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _in_stay(state, message, powered_off)
        case MachineBooted(machine_key=key) | MachineFailed(machine_key=key):
            return _stored(state, key, booted(key, state.machines[key], context.time))
        case NodeVerified(machine_key=key):
            return _stored(state, key, replace(state.machines[key], verified_at=None))
        case NodeConditionChanged():
            return _condition_changed(state, message)
        case NodeObserved(machine_key=key):
            machine = replace(state.machines[key], reported=message.unschedulable)
            return _stored(state, key, with_pods(machine, message.pods))
        case AddMachines() | BreakMachine() | RepairMachine():
            return state
        case RunPod() | StopPod() | MachineRepaired():
            return state
        case _:
            assert_never(message)


def added(event: MachineAdded) -> Machine:
    """A new machine."""
    return Machine(
        event.boot_seconds,
        verify_s=event.verify_seconds,
        failures_per_day=event.failures_per_day,
        repair_s=event.repair_seconds,
        seed=event.seed,
    )


def joined(machine: Machine, event: CWNodeRegistered, now: datetime) -> Machine:
    """The machine as a Node of its cluster."""
    machine = in_phase(replace(machine, joined=True), event.phase, now)
    return replace(machine, fails_at=fails_at(event.machine_key, machine, now))


def instructed(machine: Machine, event: NodeUpdated, now: datetime) -> Machine:
    """The machine of a Node that is to be like this."""
    machine = replace(machine, unschedulable=event.unschedulable, cordon=event.cordon)
    if event.phase is NodePhase.REBOOTING and event.boot > machine.boot:
        return restarted(machine, event.boot, now)
    return in_phase(machine, event.phase, now)


def _condition_changed(state: State, event: NodeConditionChanged) -> State:
    key = event.machine_key
    machine = state.machines[key]
    conditions = machine.conditions
    if is_problem(event.type, event.status):
        conditions = conditions.set(event.type, True)
    elif event.type in conditions:
        conditions = conditions.delete(event.type)
    past = machine.fails_at is not None and is_problem(event.type, event.status)
    machine = replace(machine, conditions=conditions)
    return _stored(state, key, replace(machine, fails_at=None) if past else machine)


def _in_stay(state: State, message: OfNode, change: Callable[[Machine], Machine]) -> State:
    """The state with the machine of a Node changed; a message about an earlier stay is ignored."""
    machine = state.machine_of(message)
    return state if machine is None else _stored(state, message.machine_key, change(machine))


def _stored(state: State, key: MachineKey, machine: Machine) -> State:
    """The state with this machine, and its deadline in step with it."""
    due = machine.due
    work = state.work.drop(key) if due is None else state.work.put_at(key, due)
    return replace(state, machines=state.machines.set(key, machine), work=work)
