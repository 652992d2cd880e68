"""The state of the fleet service: the simulated machines."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from immutables import Map

from fleet import Hears, Says
from fleet.boot import broken, powered_off, powered_on
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
    NodeObserved,
    NodeUpdated,
)
from nodepool.contract.keys import MachineKey
from nodepool.contract.messages import OfNode
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
            return _stored(state, key, Machine(message.boot_seconds))
        case MachineBroken(machine_key=key):
            return _stored(state, key, broken(state.machines[key], message))
        case CWNodeAssigned(machine_key=key, assignment=assignment):
            machine = state.machines.get(key)
            if machine is None:
                return state
            return _stored(state, key, powered_on(machine, assignment, context.time))
        case CWNodeRegistered():
            return _in_stay(state, message, lambda machine: replace(machine, joined=True))
        case NodeUpdated(unschedulable=unschedulable, cordon=cordon):
            return _in_stay(
                state,
                message,
                lambda machine: replace(machine, unschedulable=unschedulable, cordon=cordon),
            )
        case CWDrainNode(force=force):
            return _in_stay(
                state, message, lambda machine: drained(machine, context.time, force=force)
            )
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _in_stay(state, message, powered_off)
        case MachineBooted(machine_key=key) | MachineFailed(machine_key=key):
            return _stored(state, key, replace(state.machines[key], boots_at=None))
        case NodeObserved(machine_key=key):
            machine = replace(state.machines[key], reported=message.unschedulable)
            return _stored(state, key, with_pods(machine, message.pods))
        case AddMachines() | BreakMachine() | RepairMachine():
            return state
        case RunPod() | StopPod() | MachineRepaired():
            return state
        case _:
            assert_never(message)


def _in_stay(state: State, message: OfNode, change: Callable[[Machine], Machine]) -> State:
    """The state with the machine of a Node changed; a message about an earlier stay is ignored."""
    machine = state.machine_of(message)
    return state if machine is None else _stored(state, message.machine_key, change(machine))


def _stored(state: State, key: MachineKey, machine: Machine) -> State:
    """The state with this machine, and its deadline in step with it."""
    due = machine.due
    work = state.work.drop(key) if due is None else state.work.put_at(key, due)
    return replace(state, machines=state.machines.set(key, machine), work=work)
