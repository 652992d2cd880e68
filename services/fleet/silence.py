"""Machines that send no heartbeat: when their Nodes get Ready=Unknown, and how they answer.

Kubernetes does the same: https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, TypeVar

from fleet.conditions import READY, ready_changed
from fleet.machine import Machine
from nodepool.contract.commands import MachineFault
from nodepool.contract.events import (
    HeartbeatsStopped,
    NodeConditionChanged,
    NodeReportRequested,
)
from nodepool.contract.health import CAUSES
from nodepool.contract.keys import MachineKey
from nodepool.contract.messages import Message
from nodepool.state.values import replace

E = TypeVar("E", bound=Message)
SILENCES: Final = ("hang", "kubelet")
"""The faults that stop the heartbeats of a machine that is a Node."""


def time_silences(events: Iterable[E], silent_after_s: float) -> Iterator[E | HeartbeatsStopped]:
    """Yield the events; each start of a silence gets the time after which the silence shows."""
    for event in events:
        if isinstance(event, HeartbeatsStopped):
            yield event.model_copy(update={"seconds": silent_after_s})
        else:
            yield event


def with_silence(machine: Machine, fault: MachineFault, *, is_broken: bool) -> Machine:
    """Return the machine of a Node after a fault began or ended.

    A machine that sends heartbeats has no moment at which its Node gets Ready=Unknown.
    """
    if fault == "kubelet":
        machine = replace(machine, mute=is_broken)
    return machine if machine.is_silent else replace(machine, unknown_at=None)


def stop_heartbeats(machine: Machine, event: HeartbeatsStopped, now: datetime) -> Machine:
    """Return the machine that sends no heartbeat from `now` on; it does not fail by itself."""
    return replace(
        machine,
        mute=machine.mute or machine.failing != "hang",
        unknown_at=now + timedelta(seconds=event.seconds),
        fails_at=None,
    )


def request_report(machine: Machine, event: NodeReportRequested) -> Machine:
    """Return the machine that owes an answer; kubelets of Kubernetes are observed by an agent."""
    return machine if machine.has_agent else replace(machine, asked=event.request)


def found_silent(
    key: MachineKey, machine: Machine, now: datetime
) -> Iterator[NodeConditionChanged]:
    """Yield Ready=Unknown once the machine is silent for long enough, and the answer it owes."""
    if machine.unknown_at is not None and machine.unknown_at <= now:
        yield ready_changed(key, machine, is_ready=False)
    yield from answer(key, machine)


def answer(key: MachineKey, machine: Machine) -> Iterator[NodeConditionChanged]:
    """Yield the condition Ready of the Node as the answer that the machine owes."""
    if machine.asked:
        yield ready_changed(
            key, machine, is_ready=READY not in machine.conditions, request=machine.asked
        )


def types_ended(after: Machine, fault: MachineFault) -> tuple[str, ...]:
    """Return the types of the conditions that end with a fault; `after` is the machine then."""
    if fault in SILENCES:
        return () if after.is_silent else (READY,)
    return tuple(cause.type for name, cause in CAUSES.items() if name == fault)
