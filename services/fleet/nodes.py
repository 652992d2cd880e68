"""A machine as a Node, after each event about that Node."""

from datetime import datetime

from immutables import Map

from fleet.boot import begin_reboot, in_phase
from fleet.conditions import READY, fails_at
from fleet.machine import Machine
from fleet.pods import evict_pods
from fleet.waiting import gpus_of
from nodepool.contract import events as on
from nodepool.contract.health import is_problem
from nodepool.contract.model import NodePhase
from nodepool.state.values import replace


def build_machine(event: on.MachineAdded) -> Machine:
    """Return a new machine."""
    return Machine(
        event.boot_seconds,
        gpus=gpus_of(event.instance_type),
        verify_s=event.verify_seconds,
        failures_per_day=event.failures_per_day,
        repair_s=event.repair_seconds,
        seed=event.seed,
        wipe_s=event.wipe_seconds,
    )


def handed_over(machine: Machine) -> Machine:
    """Return the machine of a Node whose cluster has an agent from now on."""
    conditions = machine.conditions
    rest = conditions.delete(READY) if READY in conditions else conditions
    return replace(
        machine,
        has_agent=True,
        pods=Map(),
        kills=Map(),
        conditions=rest,
        mute=False,
        unknown_at=None,
        asked=0,
    )


def join_cluster(machine: Machine, event: on.CWNodeRegistered, now: datetime) -> Machine:
    """Return the machine as a Node of its cluster."""
    machine = in_phase(replace(machine, joined=True), event.phase, now)
    return replace(machine, fails_at=fails_at(event.machine_key, machine, now))


def instruct_machine(machine: Machine, event: on.NodeUpdated, now: datetime) -> Machine:
    """Return the machine with the cordon, the lock and the phase that its Node should have."""
    machine = replace(
        machine, unschedulable=event.unschedulable, cordon=event.cordon, lock=event.lock
    )
    if event.phase is NodePhase.REBOOTING and event.boot > machine.boot:
        return evict_pods(begin_reboot(machine, event.boot, now), now)
    return evict_pods(in_phase(machine, event.phase, now), now)


def condition_changed(machine: Machine, event: on.NodeConditionChanged) -> Machine:
    """Return the machine with a condition changed; with a problem it does not fail by itself."""
    conditions = machine.conditions
    if event.request == machine.asked:
        machine = replace(machine, asked=0)
    if event.type == READY:
        is_mute = is_problem(event.type, event.status) and machine.failing != "hang"
        machine = replace(machine, mute=machine.mute or is_mute, unknown_at=None)
    if is_problem(event.type, event.status):
        return replace(machine, conditions=conditions.set(event.type, True), fails_at=None)
    if event.type not in conditions:
        return machine
    return replace(machine, conditions=conditions.delete(event.type))
