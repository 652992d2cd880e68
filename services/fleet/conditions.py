"""The conditions of the Node on a machine: the current ones, and the next one to report."""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import get_args

from fleet.machine import Machine
from nodepool.contract.events import HeartbeatsStopped, NodeConditionChanged
from nodepool.contract.health import BY_TYPE, CAUSES, NodeFault
from nodepool.contract.keys import MachineKey, machine_parts

FAULTS: tuple[NodeFault, ...] = get_args(NodeFault)
DAY_S = 86_400
READY = "Ready"
"""The condition that shows whether the kubelet of a Node is silent."""
SILENT_AFTER_S = 40.0
"""How long a machine must be silent until its Node gets Ready=Unknown, unless a setting says
otherwise. Kubernetes calls this time `--node-monitor-grace-period`."""


def as_node_fault(fault: str) -> NodeFault | None:
    """Return the fault if it can begin while a machine is a Node; None for any other fault."""
    return next((each for each in FAULTS if each == fault), None)


def problem_begun(
    key: MachineKey, machine: Machine, fault: NodeFault
) -> Iterator[NodeConditionChanged | HeartbeatsStopped]:
    """Yield that this fault began on the Node, unless that is known or the cluster reports it."""
    cause = CAUSES[fault]
    if cause.type == READY:
        yield from heartbeats_stopped(key, machine)
    elif cause.type not in machine.conditions:
        yield _report_condition(key, machine, fault)


def heartbeats_stopped(key: MachineKey, machine: Machine) -> Iterator[HeartbeatsStopped]:
    """Yield that a machine falls silent, unless that is known or its cluster reports it."""
    if machine.has_agent or machine.unknown_at is not None or READY in machine.conditions:
        return
    zone, name = machine_parts(key)
    yield HeartbeatsStopped(
        zone=zone, machine=name, assignment=machine.assignment, seconds=SILENT_AFTER_S
    )


def ready_changed(
    key: MachineKey, machine: Machine, *, is_ready: bool, request: int = 0
) -> NodeConditionChanged:
    """Return the condition Ready of the Node; `request` numbers the request that it answers."""
    if not is_ready:
        return _report_condition(key, machine, "kubelet", request)
    zone, name = machine_parts(key)
    return NodeConditionChanged(
        zone=zone,
        machine=name,
        assignment=machine.assignment,
        type=READY,
        status="True",
        reason=CAUSES["kubelet"].healthy,
        message="kubelet is posting ready status",
        request=request,
    )


def _report_condition(
    key: MachineKey, machine: Machine, fault: NodeFault, request: int = 0
) -> NodeConditionChanged:
    cause = CAUSES[fault]
    said_cause = machine.fault_cause if machine.fault == fault else ""
    zone, name = machine_parts(key)
    return NodeConditionChanged(
        zone=zone,
        machine=name,
        assignment=machine.assignment,
        type=cause.type,
        status=cause.status,
        reason=cause.reason,
        message=said_cause or cause.message,
        request=request,
    )


def problems_ended(
    key: MachineKey, machine: Machine, *types: str
) -> Iterator[NodeConditionChanged]:
    """Yield the end of each problem of these types that the Node has."""
    zone, name = machine_parts(key)
    for type_ in sorted(machine.conditions):
        if type_ not in types:
            continue
        if type_ == READY:
            yield ready_changed(key, machine, is_ready=True)
            continue
        cause = BY_TYPE[type_]
        yield NodeConditionChanged(
            zone=zone,
            machine=name,
            assignment=machine.assignment,
            type=type_,
            status="False",
            reason=cause.healthy,
            message="",
        )


def gone_after_reboot(machine: Machine) -> tuple[str, ...]:
    """Return the types of the conditions that a reboot of the Node ends."""
    return tuple(type_ for type_ in machine.conditions if BY_TYPE[type_].ends_at_reboot)


def fails_at(key: MachineKey, machine: Machine, since: datetime) -> datetime | None:
    """Return when a machine that works from `since` on fails by itself; None for never.

    The times between failures are those of a Poisson process, drawn from the name of the machine
    and the number of its boot, so that each run has the same ones.
    """
    if not machine.failures_per_day:
        return None
    chance = (_draw(key, machine, "when") + 1) / 2**32
    return since + timedelta(seconds=-math.log(chance) / machine.failures_per_day * DAY_S)


def next_fault(key: MachineKey, machine: Machine) -> NodeFault:
    """Return the fault that a machine gets by itself; with an agent, never a kubelet fault."""
    faults = [fault for fault in FAULTS if not machine.has_agent or CAUSES[fault].type != READY]
    return faults[_draw(key, machine, "how") % len(faults)]


def _draw(key: MachineKey, machine: Machine, what: str) -> int:
    """Return a pseudorandom number below 2**32 for this purpose, the same in each run."""
    text = f"{machine.seed} {key} {machine.assignment} {machine.boot} {what}"
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big")
