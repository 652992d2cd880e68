"""The simulation finds each fault in a service for Nodes, in the engine and in the log."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

import fleet
import lifecycle
import preemption
from aggregator import Hears as AggregatorInput
from aggregator.decide import SERVICE as AGGREGATOR
from aggregator.state import State as AggregatorState
from fleet.decide import SERVICE as FLEET
from fleet.state import State as FleetState
from lifecycle.decide import SERVICE as LIFECYCLE
from lifecycle.state import State as LifecycleState
from nodepool.contract.events import (
    CWNodeDeleted,
    MachineAdded,
    NodeObserved,
    NodeRemovalCancelled,
    PreemptionPending,
)
from nodepool.contract.keys import MachineKey, NodeKey, PoolKey
from nodepool.contract.messages import Command, Message
from nodepool.contract.outcomes import CommandOutcome
from nodepool.service import AnyService, Context
from nodepool.state.receipts import Receipts
from preemption.decide import SERVICE as PREEMPTION
from preemption.state import State as PreemptionState
from support.services import services
from support.simulation.faults import (
    LossyLog,
    UnconditionalLog,
    first_violation,
    hearing,
    with_events,
)
from support.simulation.profile import ORDINARY, SILENT, SPOT

BUSY = replace(
    SPOT,
    steps=3_500,
    machines=14,
    limits=(9, 12),
    targets=(1, 2, 3, 4, 6),
    actions={"down_and_up": 30, "scale": 30, "run_pod": 80, "stop_pod": 10, "delete": 8},
)
"""Pods come and go while NodePools shrink."""
FleetInput = fleet.Hears | fleet.Says
PreemptionInput = preemption.Hears | preemption.Says


def test_a_lifecycle_that_takes_an_old_cordon_for_a_new_one_is_found() -> None:
    def newer(state: LifecycleState, message: Message) -> Message:
        if isinstance(message, NodeObserved) and message.machine_key in state.nodes:
            cordon = state.nodes[message.machine_key].cordon.number
            return message.model_copy(update={"cordon": cordon, "unschedulable": True})
        return message

    violation = first_violation(hearing(LIFECYCLE, newer), text="Pods", profile=BUSY, first=3)

    assert "Pods" in violation


def test_a_lifecycle_that_ignores_activity_after_the_cordon_is_found() -> None:
    def idle(state: LifecycleState, message: Message) -> Message:
        node = state.nodes.get(message.machine_key) if isinstance(message, NodeObserved) else None
        is_cordoned = node is not None and node.is_cordoned
        return message.model_copy(update={"pods": ()}) if is_cordoned else message

    violation = first_violation(hearing(LIFECYCLE, idle), text="Pods", profile=BUSY)

    assert "Pods" in violation


def test_a_lifecycle_that_never_gives_up_a_silent_machine_is_found() -> None:
    reconciler = LIFECYCLE.reconciler
    assert reconciler is not None

    def reconcile(
        state: LifecycleState, key: PoolKey | MachineKey, context: Context
    ) -> Generator[lifecycle.Says, LifecycleState, None]:
        if key in state.templates:
            yield from reconciler.reconcile(state, key, context)

    violation = first_violation(
        replace(LIFECYCLE, reconciler=replace(reconciler, reconcile=reconcile)),
        text="is not deleted yet",
        profile=SILENT,
    )

    assert "is not deleted yet" in violation


def test_a_lifecycle_that_forgets_a_cancelled_removal_is_found() -> None:
    def others(_state: LifecycleState, message: Message) -> Message | None:
        return None if isinstance(message, NodeRemovalCancelled) else message

    violation = first_violation(
        hearing(LIFECYCLE, others), text="is deleted without a request to remove it", first=4
    )

    assert "is deleted without a request to remove it" in violation


def test_a_preemption_that_is_half_a_minute_early_is_found() -> None:
    early = timedelta(seconds=30)
    reconciler = PREEMPTION.reconciler
    assert reconciler is not None

    def evolve(
        state: PreemptionState, message: PreemptionInput, context: Context
    ) -> PreemptionState:
        state = PREEMPTION.evolve(state, message, context)
        for key, node in state.nodes.items():
            if node.due is not None and key in state.work.deadlines.moments:
                state = replace(state, work=state.work.put_at(key, node.due - early))
        return state

    def reconcile(
        state: PreemptionState, key: NodeKey, context: Context
    ) -> Generator[preemption.Says, PreemptionState, None]:
        node = state.nodes.get(key)
        is_warned = node is not None and node.pending_since is not None
        time = context.time + early if is_warned else context.time
        yield from reconciler.reconcile(state, key, context._replace(time=time))

    violation = first_violation(
        replace(PREEMPTION, evolve=evolve, reconciler=replace(reconciler, reconcile=reconcile)),
        text="moves on early",
        first=5,
    )

    assert "moves on early" in violation


def test_an_aggregator_that_miscounts_is_found() -> None:
    def evolve(
        state: AggregatorState, message: AggregatorInput, context: Context
    ) -> AggregatorState:
        if isinstance(message, CWNodeDeleted) and not message.registered:
            return state
        return AGGREGATOR.evolve(state, message, context)

    violation = first_violation(replace(AGGREGATOR, evolve=evolve))

    assert "do not add up" in violation or "is wrong" in violation


def test_a_service_with_memory_beside_its_state_is_found() -> None:
    calls = count()

    def evolve(state: FleetState, message: FleetInput, context: Context) -> FleetState:
        state = FLEET.evolve(state, message, context)
        if isinstance(message, MachineAdded):
            machine = replace(state.machines[message.machine_key], boot_s=float(next(calls) % 7))
            return replace(state, machines=state.machines.set(message.machine_key, machine))
        return state

    violation = first_violation(
        replace(FLEET, evolve=evolve), text="a replay of fleet leads to another state"
    )

    assert "a replay of fleet leads to another state" in violation


@pytest.mark.parametrize("name", ["validator", "quota", "fleet", "preemption"])
def test_a_service_that_forgets_its_outcomes_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (service,) = services(name)
    outcome_of = Receipts.outcome_of

    def forgotten(receipts: Receipts, command: Command, id: str) -> CommandOutcome | None:
        is_its_own = type(command).__name__ in service.inputs
        return None if is_its_own else outcome_of(receipts, command, id)

    monkeypatch.setattr(Receipts, "outcome_of", forgotten)

    violation = first_violation(text="has two outcomes")

    assert "has two outcomes" in violation


def test_a_service_that_decides_the_same_command_twice_is_found() -> None:
    service: AnyService = FLEET

    def decide(state: object, message: object, context: Context) -> Generator[object, object, None]:
        yield from service.decide(state, message, context)
        if isinstance(message, Command):
            second = service.decide(state, message, context)
            for event in second:
                if not isinstance(event, CommandOutcome):
                    yield event

    violation = first_violation(replace(service, decide=decide), text="MachineAddedTwice")

    assert "MachineAddedTwice" in violation


def test_a_preemption_that_warns_twice_is_found() -> None:
    def twice(
        _state: PreemptionState, event: preemption.Says, _context: Context
    ) -> Iterator[preemption.Says]:
        yield event
        if isinstance(event, PreemptionPending):
            yield event

    violation = first_violation(with_events(PREEMPTION, twice), text="is warned twice")

    assert "is warned twice" in violation


def test_a_log_that_ignores_the_expected_sequence_is_found() -> None:
    assert first_violation(log=UnconditionalLog)


def test_a_log_that_loses_an_output_is_found() -> None:
    assert first_violation(log=LossyLog, profile=replace(ORDINARY, steps=600))
