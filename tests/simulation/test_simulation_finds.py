"""The simulation finds each fault that is put into a service for NodePools on purpose."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from immutables import Map

import allocator
import quota
import validator
from allocator.decide import SERVICE as ALLOCATOR
from allocator.state import State as AllocatorState
from capacity.decide import SERVICE as CAPACITY
from nodepool.contract.conditions import Quota
from nodepool.contract.events import (
    CapacityChecked,
    CWNodeAssigned,
    CWNodeDeletionRequestSuccess,
    CWNodePoolNodesRemoved,
    GrantAcknowledged,
    NodePoolValidated,
    QuotaChecked,
)
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey
from nodepool.contract.messages import Message, path_fields
from nodepool.contract.model import RemovalReason
from nodepool.placement.ranking import Ranking, Turn
from nodepool.service import AnyService, Context
from quota.decide import SERVICE as QUOTA
from quota.state import State as QuotaState
from support.simulation.faults import first_violation, with_events, without_reconciler
from validator.decide import SERVICE as VALIDATOR
from validator.state import State as ValidatorState

AllocatorInput = allocator.Hears | allocator.Says
QuotaInput = quota.Hears | quota.Says


def test_nothing_is_found_where_nothing_is_broken() -> None:
    def unchanged(_state: object, event: Message, _context: Context) -> Iterator[Message]:
        yield event

    services: tuple[AnyService, ...] = (VALIDATOR, QUOTA, ALLOCATOR)
    violation = first_violation(*(with_events(each, unchanged) for each in services), seeds=2)

    assert violation == ""


def test_a_validator_that_gives_an_existing_pool_a_new_uid_is_found() -> None:
    def renewed(
        _state: ValidatorState, event: validator.Says, context: Context
    ) -> Iterator[validator.Says]:
        if isinstance(event, NodePoolValidated):
            yield event.model_copy(update={"uid": str(context.position)})
        else:
            yield event

    violation = first_violation(with_events(VALIDATOR, renewed), text="NodePoolReplaced")

    assert "NodePoolReplaced" in violation


def test_a_quota_that_ignores_what_others_reserve_is_found() -> None:
    def generous(state: QuotaState, event: quota.Says, _context: Context) -> Iterator[quota.Says]:
        if isinstance(event, QuotaChecked) and event.limit is not None:
            granted = min(state.pools[event.key].target, event.limit)
            yield event.model_copy(update={"reason": Quota.UNDER, "granted": granted})
        else:
            yield event

    violation = first_violation(with_events(QUOTA, generous), text="is granted")

    assert "is granted" in violation
    assert "are reserved" in violation


def test_a_grant_given_back_before_the_allocator_acknowledged_it_is_found() -> None:
    def evolve(state: QuotaState, message: QuotaInput, context: Context) -> QuotaState:
        state = QUOTA.evolve(state, message, context)
        if isinstance(message, QuotaChecked) and message.key in state.pools:
            acknowledged = GrantAcknowledged(
                **path_fields(message),
                uid=message.uid,
                generation=message.generation,
                granted=message.granted,
                number=message.number,
            )
            return QUOTA.evolve(state, acknowledged, context)
        return state

    violation = first_violation(replace(QUOTA, evolve=evolve), text="are reserved", first=3)

    assert "are reserved" in violation


def test_a_quota_that_is_never_woken_is_found() -> None:
    violation = first_violation(without_reconciler(QUOTA), text="in the end")

    assert "in the end" in violation


def test_a_capacity_that_is_never_woken_is_found() -> None:
    violation = first_violation(without_reconciler(CAPACITY), text="Capacity is (")

    assert "Capacity is (" in violation


def test_a_machine_that_is_assigned_twice_is_found() -> None:
    def free(state: AllocatorState, key: MachineKey) -> AllocatorState:
        machine = replace(state.inventory.machines[key], holder="")
        machines = state.inventory.machines.set(key, machine)
        return replace(state, inventory=replace(state.inventory, machines=machines))

    def evolve(state: AllocatorState, message: AllocatorInput, context: Context) -> AllocatorState:
        if isinstance(message, CWNodeAssigned):
            state = free(state, message.machine_key)
        return ALLOCATOR.evolve(state, message, context)

    def again(
        state: AllocatorState, event: allocator.Says, _context: Context
    ) -> Iterator[allocator.Says]:
        if isinstance(event, CWNodeAssigned):
            held = [m.name for m in state.inventory.machines.values() if m.holder.count("/")]
            yield event.model_copy(update={"node": min(held, default=event.node)})
        else:
            yield event

    violation = first_violation(replace(with_events(ALLOCATOR, again), evolve=evolve))

    assert "MachineHeld" in violation or "MachineUnfit" in violation


class Backwards(Ranking):
    """A ranking whose NodePools of each class are served in the reverse order."""

    def turns(self) -> Generator[Turn, int | None, None]:
        """Yield the turns from the last to the first; spot still comes last."""
        turns = list(super().turns())
        spot = [turn for turn in turns if self.waiting[turn.key].is_spot]
        default = [turn for turn in turns if turn not in spot]
        for turn in (*reversed(default), *reversed(spot)):
            _ = yield turn  # How many positions the allocator filled changes no later turn.


def fields_of(ranking: Ranking) -> tuple[Any, ...]:
    """Return the fields of a ranking."""
    return ranking.waiting, ranking.places, ranking.orders, ranking.demand, ranking.choosy


def test_an_allocator_that_serves_the_lowest_rank_first_is_found() -> None:
    reconciler = ALLOCATOR.reconciler
    assert reconciler is not None

    def reconcile(
        state: AllocatorState, key: OfferingKey | PoolKey, context: Context
    ) -> Generator[allocator.Says, AllocatorState, None]:
        waiting = Map((name, Backwards(*fields_of(each))) for name, each in state.waiting.items())
        yield from reconciler.reconcile(replace(state, waiting=waiting), key, context)

    violation = first_violation(
        replace(ALLOCATOR, reconciler=replace(reconciler, reconcile=reconcile)),
        text="which has a higher rank",
    )

    assert "which has a higher rank" in violation


def test_an_allocator_that_does_not_wait_for_its_grant_is_found() -> None:
    def evolve(state: AllocatorState, message: AllocatorInput, context: Context) -> AllocatorState:
        if isinstance(message, QuotaChecked | CapacityChecked) and message.key in state.pools:
            target = state.pools[message.key].spec.target
            message = message.model_copy(update={"granted": target})
        if isinstance(message, QuotaChecked):
            message = message.model_copy(update={"reason": Quota.UNDER})
        return ALLOCATOR.evolve(state, message, context)

    violation = first_violation(replace(ALLOCATOR, evolve=evolve), text="is given a Node and holds")

    assert "is given a Node and holds" in violation


def test_an_allocator_that_never_acknowledges_a_grant_is_found() -> None:
    def silent(
        _state: AllocatorState, event: allocator.Says, _context: Context
    ) -> Iterator[allocator.Says]:
        if not isinstance(event, GrantAcknowledged):
            yield event

    violation = first_violation(with_events(ALLOCATOR, silent), text="keeps its grant at")

    assert "keeps its grant at" in violation


def test_an_allocator_that_reports_a_pool_empty_too_early_is_found() -> None:
    def hasty(
        state: AllocatorState, event: allocator.Says, _context: Context
    ) -> Iterator[allocator.Says]:
        yield event
        if (
            isinstance(event, CWNodeDeletionRequestSuccess)
            and event.removal is RemovalReason.POOL_DELETED
        ):
            yield CWNodePoolNodesRemoved(
                **path_fields(event),
                uid=state.pools[event.key].uid,
                count=0,
                remaining=0,
                removal=event.removal,
                message="",
            )

    violation = first_violation(with_events(ALLOCATOR, hasty), text="NodePoolNotEmpty")

    assert "NodePoolNotEmpty" in violation
