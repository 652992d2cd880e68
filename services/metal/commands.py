"""What operators may ask of a real machine."""

from collections.abc import Iterator
from typing import assert_never

from metal import Decides
from metal.machine import Machine
from metal.nodes import request_check
from metal.state import State
from nodepool.contract.catalog import provider_fault, zone_fault
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower, VerifyMachine
from nodepool.contract.events import (
    MachineCheckRequested,
    MachineMaintenanceChanged,
    MachinePowerWished,
)
from nodepool.contract.keys import MachineKey
from nodepool.contract.node_states import MachineState
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.contract.real_machines import PROVIDER, Purpose

Followed = CommandOutcome | MachinePowerWished | MachineMaintenanceChanged | MachineCheckRequested


def carry_out(state: State, command: Decides) -> Iterator[Followed]:
    """Yield the outcome of a command, and its event."""
    key = command.machine_key
    machine = state.machines.get(key)
    if machine is None:
        fault = zone_fault(command.zone) or provider_fault(command.zone, PROVIDER)
        field = "zone" if fault else "machine"
        unknown = f"{key} is not a known machine: declare it in the inventory"
        yield build_refusal(command, field, fault or unknown)
        return
    match command:
        case SetMachinePower():
            yield from _set_power(machine, command)
        case MaintainMachine():
            yield from _maintain(machine, command)
        case VerifyMachine():
            yield from _verify(key, machine, command)
        case _:
            assert_never(command)


def _set_power(machine: Machine, command: SetMachinePower) -> Iterator[Followed]:
    if fault := _find_power_fault(machine):
        yield build_refusal(command, "machine", fault, "Conflict")
        return
    yield build_acceptance(command, "done")
    yield MachinePowerWished(
        zone=command.zone,
        machine=command.machine,
        power=command.power,
        wish=machine.wishes + 1,
    )


def _find_power_fault(machine: Machine) -> str:
    """Return why an operator cannot change the power of a machine, and what to do; else empty."""
    if machine.declared is None:
        return "the inventory does not have the machine: declare it first"
    if machine.state is MachineState.ZAP and not machine.is_maintained:
        what = "waits to be wiped" if machine.awaits_wipe else "is wiped"
        return f"the machine {what}: wait for that, or take it into maintenance first"
    if machine.is_in_service:
        return "the machine is in service: reboot its Node, or take it into maintenance first"
    if machine.seen is not None and machine.seen.stranger:
        return f"{machine.seen.stranger}: correct the inventory first"
    return machine.rival or machine.change


def _maintain(machine: Machine, command: MaintainMachine) -> Iterator[Followed]:
    is_same = machine.is_maintained == command.maintenance
    if is_same and (machine.reason == command.reason or not command.maintenance):
        yield build_acceptance(command, "unchanged")
        return
    yield build_acceptance(command, "done")
    yield MachineMaintenanceChanged(
        zone=command.zone,
        machine=command.machine,
        maintenance=command.maintenance,
        reason=command.reason if command.maintenance else "",
    )


def _verify(key: MachineKey, machine: Machine, command: VerifyMachine) -> Iterator[Followed]:
    if machine.declared is None:
        fault = "the inventory does not have the machine: declare it first"
        yield build_refusal(command, "machine", fault, "Conflict")
        return
    is_out = bool(machine.added_type) and not machine.is_in_service
    purpose: Purpose = "return" if is_out and not machine.is_maintained else "look"
    if machine.check is not None and machine.check.purpose in (purpose, "verify"):
        yield build_acceptance(command, "unchanged")
        return
    yield build_acceptance(command, "done")
    yield request_check(key, machine, purpose)
