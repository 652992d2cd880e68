"""The conditions of the Node that a machine is: which it has, and which it reports next."""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import get_args

from fleet.machine import Machine
from nodepool.contract.events import NodeConditionChanged
from nodepool.contract.health import BY_TYPE, CAUSES, NodeFault
from nodepool.contract.keys import MachineKey, machine_parts

FAULTS: tuple[NodeFault, ...] = get_args(NodeFault)
DAY_S = 86_400
READY = "Ready"
"""The condition of a Node whose kubelet is silent."""


def as_node_fault(fault: str) -> NodeFault | None:
    """The fault, if it is one that comes while a machine is a Node."""
    return next((each for each in FAULTS if each == fault), None)


def problem_begun(
    key: MachineKey, machine: Machine, fault: NodeFault
) -> Iterator[NodeConditionChanged]:
    """The Node has this fault; nothing where it has it already, or its cluster reports it."""
    cause = CAUSES[fault]
    if cause.type in machine.conditions or (machine.has_agent and cause.type == READY):
        return
    said_cause = machine.fault_cause if machine.fault == fault else ""
    zone, name = machine_parts(key)
    yield NodeConditionChanged(
        zone=zone,
        machine=name,
        assignment=machine.assignment,
        type=cause.type,
        status=cause.status,
        reason=cause.reason,
        message=said_cause or cause.message,
    )


def problems_ended(
    key: MachineKey, machine: Machine, *types: str
) -> Iterator[NodeConditionChanged]:
    """The Node has none of these problems any more."""
    zone, name = machine_parts(key)
    for type_ in sorted(machine.conditions):
        if type_ not in types:
            continue
        cause = BY_TYPE[type_]
        yield NodeConditionChanged(
            zone=zone,
            machine=name,
            assignment=machine.assignment,
            type=type_,
            status="True" if type_ == READY else "False",
            reason=cause.healthy,
            message="kubelet is posting ready status" if type_ == READY else "",
        )


def gone_after_reboot(machine: Machine) -> tuple[str, ...]:
    """The conditions that a reboot ends."""
    return tuple(type_ for type_ in machine.conditions if BY_TYPE[type_].ends_at_reboot)


def fails_at(key: MachineKey, machine: Machine, since: datetime) -> datetime | None:
    """When a machine that works since then fails by itself; None for never.

    The times between failures are those of a Poisson process, drawn from the name of the machine
    and the number of its boot, so that each run has the same ones.
    """
    if not machine.failures_per_day:
        return None
    chance = (_draw(key, machine, "when") + 1) / 2**32
    return since + timedelta(seconds=-math.log(chance) / machine.failures_per_day * DAY_S)


def next_fault(key: MachineKey, machine: Machine) -> NodeFault:
    """How a machine fails by itself after its last boot; a kubelet of Kubernetes does not."""
    faults = [fault for fault in FAULTS if not machine.has_agent or CAUSES[fault].type != READY]
    return faults[_draw(key, machine, "how") % len(faults)]


def _draw(key: MachineKey, machine: Machine, what: str) -> int:
    """A number below 2**32 that looks random."""
    text = f"{machine.seed} {key} {machine.assignment} {machine.boot} {what}"
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big")
