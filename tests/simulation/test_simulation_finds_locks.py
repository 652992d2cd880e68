"""The simulation finds each fault in how Pods wait for Nodes, and in how jobs lock them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fleet.machine import Machine
from fleet.placement import Free
from lifecycle.changes import _ask as ask
from lifecycle.decide import SERVICE as LIFECYCLE
from lifecycle.lock import Lock
from lifecycle.node import Node, Workload
from lifecycle.node_events import answer_awaited
from lifecycle.state import State as LifecycleState
from lifecycle.table import Case, Steps, _meet_lock_deadline
from nodepool.contract.events import NodeObserved
from nodepool.contract.messages import Message
from nodepool.contract.pods import Pod
from support.simulation.faults import Plant, hearing, violation_of
from support.simulation.profile import SLURM

Events = Iterable[Message]
LOCKED = replace(SLURM, steps=3_000)
SHRINKING = replace(
    LOCKED,
    faults=("boot",),
    actions={**SLURM.actions, "scale": 40, "lock": 40, "unlock": 6, "preempt": 0},
)
"""NodePools shrink while jobs hold their Nodes."""
SILENT = replace(LOCKED, faults=("hang",), actions={**SLURM.actions, "break_one": 20})
ALL_SILENT = replace(SILENT, actions={**SILENT.actions, "break_one": 200})
"""Most machines are silent at once, so that no Node becomes unhealthy and loses its lock."""


DRAINING = replace(
    LOCKED,
    faults=("boot",),
    hurries=0.03,
    late=("lifecycle",),
    actions={
        **SLURM.actions,
        "scale": 40,
        "run_pod": 40,
        "stop_pod": 20,
        "delete": 10,
        "lock": 0,
        "break_one": 0,
    },
)
"""Nodes on which Pods with long grace periods run are drained."""


def _with_older_reports(state: LifecycleState, message: Message) -> Message:
    """A report of a machine, which is taken to know of the lock."""
    if isinstance(message, NodeObserved) and message.machine_key in state.nodes:
        lock = state.nodes[message.machine_key].work.lock
        return message.model_copy(update={"lock": lock.number if lock else 0})
    return message


def _open_to_all(machine: Machine, _pod: Pod) -> bool:
    return machine.joined and machine.answers and not machine.unschedulable


def _without(room: Free, pod: Pod) -> Free:
    return Free(room.pods - 1, room.gpus - pod.gpus, room.accelerators)


def _no_pods(_before: Machine | None, _after: Machine) -> bool:
    return False


def _no_end(*_: object) -> tuple[()]:
    return ()


def _never(case: Case) -> Steps:
    """When the time of the machine to answer is over, the machine gets a hundred years more."""
    node, lock = case.node, case.node.work.lock
    if lock is None or not lock.is_over(case.context.time):
        return (yield from _meet_lock_deadline(case))
    until = case.context.time + timedelta(days=36_500)
    return (yield answer_awaited(case.template, node, until, is_final=True, lock=lock.number))


def _asked_at_once(job: str, number: int, now: datetime) -> Lock:
    """A lock whose machine has to answer from the time of the command, not of the stored lock."""
    return Lock(job, number, now, now, asked=now)


def _pods_alone(node: Node) -> tuple[Workload, ...]:
    return node.work.pods


def _asked_without_grace(
    node: Node, now: datetime, _grace_s: int = 0, *, is_observed: bool = False
) -> Node:
    return ask(node, now, is_observed=is_observed)


def _without_time(_lock: Lock) -> datetime | None:
    return None


PLANTS = {
    "an old report for one that knows of the lock": Plant(
        "is locked before its Pods were gone",
        LOCKED,
        services=(hearing(LIFECYCLE, _with_older_reports),),
    ),
    "a Pod on a Node whose taint it does not tolerate": Plant(
        "is locked, and", LOCKED, functions={"fleet.placement.is_open": _open_to_all}
    ),
    "more accelerators than a Node has": Plant(
        "more than fit", LOCKED, functions={"fleet.placement.Free.without": _without}
    ),
    "a Pod that is forgotten": Plant(
        "could take it", LOCKED, functions={"fleet.state.concerns_pods": _no_pods}
    ),
    "a lock that outlives its Node": Plant(
        "is deleted with the lock",
        LOCKED,
        functions={"lifecycle.decide._end_lock": _no_end},
    ),
    "a lock that waits for a silent machine for ever": Plant(
        "still pending", ALL_SILENT, functions={"lifecycle.table._meet_lock_deadline": _never}
    ),
    "a time to answer a lock that begins with the command": Plant(
        "is given up after",
        replace(SILENT, hurries=0.03, late=("lifecycle",)),
        functions={
            "lifecycle.lock.begin_lock": _asked_at_once,
            "lifecycle.locking.begin_lock": _asked_at_once,
        },
        seed=25,
    ),
    "a lock of which the time never comes": Plant(
        "still pending",
        ALL_SILENT,
        functions={"lifecycle.lock.Lock.due": property(_without_time)},
    ),
    "a machine that is given up while its Pods have their grace period": Plant(
        "is given up early",
        DRAINING,
        functions={"lifecycle.changes._ask": _asked_without_grace},
        seed=2,
    ),
    "a scale-down that takes a Node from a job": Plant(
        "is taken from a job",
        SHRINKING,
        functions={"lifecycle.node.Node.holding": property(_pods_alone)},
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    violation = violation_of(plant, monkeypatch)

    assert plant.text in violation
