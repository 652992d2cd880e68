"""What a machine reports of its Node: conditions, marks, and the result of its verification.

Where an agent connects the cluster to Kubernetes, it reports `Ready` and the marks. Else a Node is
Ready if a system runs on its machine, and takes its marks at once, since nothing else knows them.
A reading of another machine says nothing of the Node.
"""

from collections.abc import Iterator
from datetime import datetime

from metal.machine import CHECK_S, READY, Machine, Stay
from nodepool.contract.events import (
    MachineCheckRequested,
    NodeConditionChanged,
    NodeObserved,
    NodeVerified,
)
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.health import BY_TYPE, CAUSES
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.real_machines import Purpose


def report_ready(
    key: MachineKey, machine: Machine, stay: Stay, now: datetime
) -> Iterator[NodeConditionChanged | NodeObserved]:
    """Yield what is new of a Node without an agent: whether it is Ready, and its marks.

    A Node without a system gets Ready=Unknown after a while, and reports no marks.
    """
    is_lost = READY in stay.conditions
    if machine.is_running and is_lost:
        yield _ready(key, stay, is_ready=True)
    elif not is_lost and stay.unknown_at is not None and stay.unknown_at <= now:
        yield _ready(key, stay, is_ready=False)
    elif machine.is_running and (stay.marks != stay.observed or stay.draining):
        yield _observed(key, stay)


def answer(key: MachineKey, stay: Stay) -> Iterator[NodeConditionChanged]:
    """Yield the answer to a request for a report, if it is missing."""
    if stay.asked:
        yield _ready(key, stay, is_ready=READY not in stay.conditions, request=stay.asked)


def _ready(
    key: MachineKey, stay: Stay, *, is_ready: bool, request: int = 0
) -> NodeConditionChanged:
    zone, name = machine_parts(key)
    cause = CAUSES["kubelet"]
    return NodeConditionChanged(
        zone=zone,
        machine=name,
        assignment=stay.assignment,
        type=READY,
        status="True" if is_ready else cause.status,
        reason=cause.healthy if is_ready else cause.reason,
        message="a system runs on the machine" if is_ready else cause.message,
        request=request,
    )


def _observed(key: MachineKey, stay: Stay) -> NodeObserved:
    zone, name = machine_parts(key)
    return NodeObserved(
        zone=zone,
        machine=name,
        assignment=stay.assignment,
        unschedulable=stay.marks.unschedulable,
        cordon=stay.marks.cordon,
        lock=stay.marks.lock,
    )


def report_faults(key: MachineKey, machine: Machine, stay: Stay) -> Iterator[NodeConditionChanged]:
    """Yield each problem of the Node that began or ended, as the last reading shows."""
    seen = machine.seen
    if seen is None or not machine.is_running:
        return
    zone, name = machine_parts(key)
    evidence = {CAUSES[fault].type: text for fault, text in seen.faults.items()}
    changed = (set(evidence) ^ set(stay.conditions)) - {READY}
    for type_ in sorted(changed):
        cause, is_there = BY_TYPE[type_], type_ in evidence
        yield NodeConditionChanged(
            zone=zone,
            machine=name,
            assignment=stay.assignment,
            type=type_,
            status=cause.status if is_there else "False",
            reason=cause.reason if is_there else cause.healthy,
            message=evidence.get(type_, ""),
        )


def verify(
    key: MachineKey, machine: Machine, stay: Stay, now: datetime
) -> Iterator[MachineCheckRequested | NodeVerified]:
    """Yield the check that a verification needs, and then its result."""
    if READY in stay.conditions:
        return
    check, seen = machine.check, machine.seen
    if stay.verification == "wanted" and machine.declared is not None:
        yield request_check(key, machine, "verify")
    elif not stay.verification:
        return
    elif check is None:
        yield _verified(key, stay, "the inventory does not have its machine")
    elif machine.is_checked and seen is not None:
        causes = (*seen.unfit, ", ".join(sorted(stay.conditions)))
        found = "; ".join(each for each in causes if each)
        yield _verified(key, stay, machine.change or seen.stranger or found)
    elif check.due <= now:
        minutes = int(CHECK_S) // 60
        yield _verified(key, stay, f"its controller was not read within {minutes} minutes")


def request_check(key: MachineKey, machine: Machine, purpose: Purpose) -> MachineCheckRequested:
    """Return the request for the next complete reading of a machine."""
    zone, name = machine_parts(key)
    return MachineCheckRequested(
        zone=zone, machine=name, number=machine.checks + 1, purpose=purpose, within_s=CHECK_S
    )


def _verified(key: MachineKey, stay: Stay, cause: str) -> NodeVerified:
    """Return the result of a verification, which has passed if there is no cause against it."""
    zone, name = machine_parts(key)
    return NodeVerified(
        zone=zone,
        machine=name,
        assignment=stay.assignment,
        boot=stay.boot,
        passed=not cause,
        cause=cause[:TEXT_LIMIT],
    )
