"""The simulation finds each fault that is put into a service or into the log on purpose."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from immutables import Map

from nodepool.contract.conditions import Quota
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodePoolNodesRemoved,
    GrantAcknowledged,
    MachineAdded,
    NodeObserved,
    NodePoolValidated,
    NodeUpdated,
    QuotaChecked,
    Wake,
)
from nodepool.contract.messages import Message
from nodepool.engine.proposal import Proposal
from nodepool.engine.world import Log
from nodepool.service import IMMEDIATELY, AnyService, Context
from support.services import services
from support.simulation.driver import Simulation

SEEDS_MAX = 100
"""How many simulations are run to find a fault; most are found by one of the first two."""

Services = tuple[AnyService, ...]


def service_named(name: str) -> AnyService:
    """The service of this name, as it is."""
    (service,) = services(name)
    return service


def services_with(name: str, **changes: Any) -> Services:
    """All services, that of this name with some of its functions replaced."""
    return tuple(
        replace(service, **changes) if service.name == name else service for service in services()
    )


def first_violation(broken: Services, log: Callable[[], Log] = Log) -> str:
    """The text of the first violation that a simulation finds; empty where none finds any."""
    for seed in range(SEEDS_MAX):
        try:
            Simulation(seed, broken, log=log()).run()
        except AssertionError as violation:
            return str(violation)
    return ""


def test_a_quota_that_ignores_what_others_reserve_is_found() -> None:
    quota = service_named("quota")

    def decide(state: Any, message: Message, context: Context) -> Iterator[Message]:
        for output in quota.decide(state, message, context):
            if isinstance(output, QuotaChecked) and output.limit is not None:
                granted = min(state.pools[output.key].wanted, output.limit)
                yield output.model_copy(update={"reason": Quota.UNDER, "granted": granted})
            else:
                yield output

    violation = first_violation(services_with("quota", decide=decide))

    assert "is granted" in violation
    assert "are reserved" in violation


def test_a_grant_given_back_before_the_allocator_acknowledged_it_is_found() -> None:
    quota = service_named("quota")

    def evolve(state: Any, message: Message, context: Context) -> Any:
        state = quota.evolve(state, message, context)
        if isinstance(message, QuotaChecked) and message.key in state.pools:
            acknowledged = GrantAcknowledged(
                org=message.org,
                cluster=message.cluster,
                pool=message.pool,
                uid=message.uid,
                generation=message.generation,
                granted=message.granted,
            )
            return quota.evolve(state, acknowledged, context)
        return state

    violation = first_violation(services_with("quota", evolve=evolve))

    assert "are reserved" in violation


def test_a_quota_that_is_never_woken_is_found() -> None:
    violation = first_violation(services_with("quota", wakes=lambda _state: None))

    assert "other NodePools reserve" in violation


def test_a_machine_that_is_assigned_twice_is_found() -> None:
    allocator = service_named("allocator")

    def free(state: Any, name: str) -> Any:
        machine = replace(state.inventory.machines[name], holder="")
        machines = state.inventory.machines.set(name, machine)
        return replace(state, inventory=replace(state.inventory, machines=machines))

    def evolve(state: Any, message: Message, context: Context) -> Any:
        if isinstance(message, CWNodeAssigned):
            state = free(state, f"{message.zone}/{message.node}")
        return allocator.evolve(state, message, context)

    def decide(state: Any, message: Message, context: Context) -> Iterator[Message]:
        for output in allocator.decide(state, message, context):
            if isinstance(output, CWNodeAssigned):
                held = [m.name for m in state.inventory.machines.values() if m.holder.count("/")]
                yield output.model_copy(update={"node": min(held, default=output.node)})
            else:
                yield output

    violation = first_violation(services_with("allocator", evolve=evolve, decide=decide))

    assert " holds" in violation or "not of its offering" in violation


def test_an_allocator_that_serves_the_lowest_rank_first_is_found() -> None:
    allocator = service_named("allocator")

    def decide(state: Any, message: Message, context: Context) -> Iterator[Message]:
        reversed_ = Map((name, ranks[::-1]) for name, ranks in state.offerings.items())
        return iter(allocator.decide(replace(state, offerings=reversed_), message, context))

    violation = first_violation(services_with("allocator", decide=decide))

    assert "which has a higher rank" in violation


def test_an_allocator_that_does_not_wait_for_its_grant_is_found() -> None:
    allocator = service_named("allocator")

    def evolve(state: Any, message: Message, context: Context) -> Any:
        state = allocator.evolve(state, message, context)
        if isinstance(message, QuotaChecked) and message.key in state.pools:
            pool = state.pools[message.key]
            wanted = replace(pool, granted=pool.spec.target_nodes, within_quota=True)
            return replace(state, pools=state.pools.set(message.key, wanted))
        return state

    violation = first_violation(services_with("allocator", evolve=evolve))

    assert " holds " in violation


def test_an_allocator_that_reports_a_pool_empty_too_early_is_found() -> None:
    allocator = service_named("allocator")

    def decide(state: Any, message: Message, context: Context) -> Iterator[Message]:
        for output in allocator.decide(state, message, context):
            yield output
            if isinstance(output, CWNodeDeletionRequestSuccess) and output.removal == "PoolDeleted":
                pool = state.pools[output.key]
                yield CWNodePoolNodesRemoved(
                    org=output.org,
                    cluster=output.cluster,
                    pool=output.pool,
                    uid=pool.uid,
                    count=0,
                    remaining=0,
                    removal=output.removal,
                    message="",
                )

    violation = first_violation(services_with("allocator", decide=decide))

    assert "is reported empty" in violation


def test_a_capacity_that_is_never_woken_is_found() -> None:
    violation = first_violation(services_with("capacity", wakes=lambda _state: None))

    assert "its condition Capacity is wrong" in violation or "it waits while" in violation


@pytest.mark.parametrize("name", ["validator", "quota", "fleet", "preemption"])
def test_a_service_that_forgets_its_outcomes_is_found(name: str) -> None:
    service = service_named(name)

    def evolve(state: Any, message: Message, context: Context) -> Any:
        if isinstance(message, CommandAccepted | CommandRefused):
            return state
        return service.evolve(state, message, context)

    violation = first_violation(services_with(name, evolve=evolve))

    assert "has two outcomes" in violation


def test_a_validator_that_gives_an_existing_pool_a_new_uid_is_found() -> None:
    validator = service_named("validator")

    def decide(state: Any, message: Message, context: Context) -> Iterator[Message]:
        for output in validator.decide(state, message, context):
            if isinstance(output, NodePoolValidated):
                yield output.model_copy(update={"uid": str(context.position)})
            else:
                yield output

    violation = first_violation(services_with("validator", decide=decide))

    assert "while another NodePool has its name" in violation


def test_a_lifecycle_that_takes_an_old_cordon_for_a_new_one_is_found() -> None:
    lifecycle = service_named("lifecycle")

    def decide(state: Any, message: Message, context: Context) -> Iterator[Message]:
        if isinstance(message, NodeObserved) and message.machine_key in state.nodes:
            cordon = state.nodes[message.machine_key].cordon
            message = message.model_copy(update={"cordon": cordon})
        return iter(lifecycle.decide(state, message, context))

    violation = first_violation(services_with("lifecycle", decide=decide))

    assert "while Pods run on it" in violation or "not observed before" in violation


def test_a_lifecycle_that_ignores_activity_after_the_cordon_is_found() -> None:
    lifecycle = service_named("lifecycle")

    def decide(state: Any, message: Message, context: Context) -> Iterator[Message]:
        for output in lifecycle.decide(state, message, context):
            yield output
            if isinstance(output, NodeUpdated) and output.phase == "cordoned" and output.removal:
                node = state.nodes[f"{output.zone}/{output.node}"]
                cordoned = replace(
                    node, phase=output.phase, cordon=output.cordon, removal=output.removal
                )
                nodes = state.nodes.set(f"{output.zone}/{output.node}", cordoned)
                observed = NodeObserved(
                    zone=output.zone,
                    machine=output.node,
                    assignment=output.assignment,
                    unschedulable=True,
                    cordon=output.cordon,
                )
                yield from lifecycle.decide(replace(state, nodes=nodes), observed, context)

    violation = first_violation(services_with("lifecycle", decide=decide))

    assert "while Pods run on it" in violation or "not observed before" in violation


def test_a_lifecycle_that_never_gives_up_a_silent_machine_is_found() -> None:
    def wakes(state: Any) -> datetime | None:
        return IMMEDIATELY if len(state.stale) else None

    violation = first_violation(services_with("lifecycle", wakes=wakes))

    assert "nor was given up" in violation


def test_a_preemption_that_is_half_a_minute_early_is_found() -> None:
    preemption = service_named("preemption")
    early = timedelta(seconds=30)

    def decide(state: Any, message: Message, context: Context) -> Iterator[Message]:
        if isinstance(message, Wake):
            context = context._replace(time=context.time + early)
        return iter(preemption.decide(state, message, context))

    def wakes(state: Any) -> Any:
        due = preemption.wakes(state)
        return None if due is None else due - early

    violation = first_violation(services_with("preemption", decide=decide, wakes=wakes))

    assert "moves on early" in violation


def test_an_aggregator_that_miscounts_is_found() -> None:
    aggregator = service_named("aggregator")

    def evolve(state: Any, message: Message, context: Context) -> Any:
        if isinstance(message, CWNodeDeleted) and not message.registered:
            return state
        return aggregator.evolve(state, message, context)

    violation = first_violation(services_with("aggregator", evolve=evolve))

    assert "do not add up" in violation or "is wrong" in violation


def test_a_service_with_memory_beside_its_state_is_found() -> None:
    fleet, calls = service_named("fleet"), count()

    def evolve(state: Any, message: Message, context: Context) -> Any:
        state = fleet.evolve(state, message, context)
        if isinstance(message, MachineAdded):
            machine = replace(state.machines[message.machine_key], boot_s=float(next(calls) % 7))
            return replace(state, machines=state.machines.set(message.machine_key, machine))
        return state

    violation = first_violation(services_with("fleet", evolve=evolve))

    assert "a replay of fleet leads to another state" in violation


@dataclass
class Unconditional(Log):
    """A log that stores every proposal, whatever sequence it expects."""

    def commit(self, proposal: Proposal[Any, Any]) -> int | None:
        self.last_commits[proposal.service] = proposal.expected_sequence
        return super().commit(proposal)


@dataclass
class Lossy(Log):
    """A log that loses the last output of every seventh commit."""

    commits: Iterator[int] = field(default_factory=count)

    def commit(self, proposal: Proposal[Any, Any]) -> int | None:
        position = super().commit(proposal)
        if position is not None and next(self.commits) % 7 == 6:
            lost = self.entries[-2]
            self.entries[-2] = lost._replace(subject="np.lost")
        return position


def test_a_log_that_ignores_the_expected_sequence_is_found() -> None:
    assert first_violation(services(), Unconditional)


def test_a_log_that_loses_an_output_is_found() -> None:
    assert first_violation(services(), Lossy)
