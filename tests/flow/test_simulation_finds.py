"""Each rule broken on purpose is soon found by the simulation."""

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
from support.simulation import Simulation
from support.stage import services

SEEDS_MAX = 100
"""How many simulations a broken rule may survive; most are found by the first two."""

House = tuple[AnyService, ...]


def named(name: str) -> AnyService:
    (found,) = services(name)
    return found


def house(name: str, **changes: Any) -> House:
    """Every service, one of them with something else in its place."""
    return tuple(
        replace(service, **changes) if service.name == name else service for service in services()
    )


def found(broken: House, log: Callable[[], Log] = Log) -> str:
    """What the first simulation found that broke; empty where none did."""
    for seed in range(SEEDS_MAX):
        try:
            Simulation(seed, broken, log=log()).run()
        except AssertionError as breach:
            return str(breach)
    return ""


def test_a_quota_that_forgets_what_others_reserve_is_found() -> None:
    quota = named("quota")

    def decide(state: Any, message: Message, now: Context) -> Iterator[Message]:
        for said in quota.decide(state, message, now):
            if isinstance(said, QuotaChecked) and said.limit is not None:
                granted = min(state.pools[said.key].wanted, said.limit)
                yield said.model_copy(update={"reason": Quota.UNDER, "granted": granted})
            else:
                yield said

    breach = found(house("quota", decide=decide))

    assert "grants" in breach


def test_a_grant_that_is_given_back_before_the_allocator_agreed_is_found() -> None:
    quota = named("quota")

    def evolve(state: Any, message: Message, now: Context) -> Any:
        state = quota.evolve(state, message, now)
        if isinstance(message, QuotaChecked) and message.key in state.pools:
            agreed = GrantAcknowledged(
                org=message.org,
                cluster=message.cluster,
                pool=message.pool,
                uid=message.uid,
                generation=message.generation,
                granted=message.granted,
            )
            return quota.evolve(state, agreed, now)
        return state

    breach = found(house("quota", evolve=evolve))

    assert " takes " in breach or "grants " in breach


def test_a_quota_that_never_looks_again_is_found() -> None:
    breach = found(house("quota", wakes=lambda _state: None))

    assert "others reserve" in breach


def test_a_machine_that_is_taken_twice_is_found() -> None:
    allocator = named("allocator")

    def free(state: Any, name: str) -> Any:
        machine = replace(state.inventory.machines[name], holder="")
        machines = state.inventory.machines.set(name, machine)
        return replace(state, inventory=replace(state.inventory, machines=machines))

    def evolve(state: Any, message: Message, now: Context) -> Any:
        if isinstance(message, CWNodeAssigned):
            state = free(state, f"{message.zone}/{message.node}")
        return allocator.evolve(state, message, now)

    def decide(state: Any, message: Message, now: Context) -> Iterator[Message]:
        for said in allocator.decide(state, message, now):
            if isinstance(said, CWNodeAssigned):
                held = [m.name for m in state.inventory.machines.values() if m.holder.count("/")]
                yield said.model_copy(update={"node": min(held, default=said.node)})
            else:
                yield said

    breach = found(house("allocator", evolve=evolve, decide=decide))

    assert " holds" in breach or "not of its offering" in breach


def test_an_allocator_that_serves_the_last_to_come_first_is_found() -> None:
    allocator = named("allocator")

    def decide(state: Any, message: Message, now: Context) -> Iterator[Message]:
        turned = Map((name, ranks[::-1]) for name, ranks in state.offerings.items())
        return iter(allocator.decide(replace(state, offerings=turned), message, now))

    breach = found(house("allocator", decide=decide))

    assert "who was first" in breach


def test_an_allocator_that_does_not_wait_for_its_grant_is_found() -> None:
    allocator = named("allocator")

    def evolve(state: Any, message: Message, now: Context) -> Any:
        state = allocator.evolve(state, message, now)
        if isinstance(message, QuotaChecked) and message.key in state.pools:
            pool = state.pools[message.key]
            wanted = replace(pool, granted=pool.spec.target_nodes, within_quota=True)
            return replace(state, pools=state.pools.set(message.key, wanted))
        return state

    breach = found(house("allocator", evolve=evolve))

    assert " holds " in breach


def test_an_allocator_that_calls_a_pool_empty_too_early_is_found() -> None:
    allocator = named("allocator")

    def decide(state: Any, message: Message, now: Context) -> Iterator[Message]:
        for said in allocator.decide(state, message, now):
            yield said
            if isinstance(said, CWNodeDeletionRequestSuccess) and said.removal == "PoolDeleted":
                pool = state.pools[said.key]
                yield CWNodePoolNodesRemoved(
                    org=said.org,
                    cluster=said.cluster,
                    pool=said.pool,
                    uid=pool.uid,
                    count=0,
                    remaining=0,
                    removal=said.removal,
                    message="",
                )

    breach = found(house("allocator", decide=decide))

    assert "is called empty" in breach


def test_a_capacity_that_never_looks_again_is_found() -> None:
    breach = found(house("capacity", wakes=lambda _state: None))

    assert "its Capacity says another thing" in breach or "it waits while" in breach


@pytest.mark.parametrize("forgetful", ["validator", "quota", "fleet", "preemption"])
def test_a_service_that_forgets_its_receipts_is_found(forgetful: str) -> None:
    service = named(forgetful)

    def evolve(state: Any, message: Message, now: Context) -> Any:
        if isinstance(message, CommandAccepted | CommandRefused):
            return state
        return service.evolve(state, message, now)

    breach = found(house(forgetful, evolve=evolve))

    assert "has two outcomes" in breach


def test_a_validator_that_invents_a_new_uid_for_a_pool_that_is_there_is_found() -> None:
    validator = named("validator")

    def decide(state: Any, message: Message, now: Context) -> Iterator[Message]:
        for said in validator.decide(state, message, now):
            if isinstance(said, NodePoolValidated):
                yield said.model_copy(update={"uid": str(now.position)})
            else:
                yield said

    breach = found(house("validator", decide=decide))

    assert "while another of its name is there" in breach


def test_a_lifecycle_that_takes_an_old_cordon_for_the_new_one_is_found() -> None:
    lifecycle = named("lifecycle")

    def decide(state: Any, message: Message, now: Context) -> Iterator[Message]:
        if isinstance(message, NodeObserved) and message.machine_key in state.nodes:
            cordon = state.nodes[message.machine_key].cordon
            message = message.model_copy(update={"cordon": cordon})
        return iter(lifecycle.decide(state, message, now))

    breach = found(house("lifecycle", decide=decide))

    assert "while it works" in breach or "before anybody looked" in breach


def test_a_lifecycle_that_does_not_read_the_activity_after_the_cordon_is_found() -> None:
    lifecycle = named("lifecycle")

    def decide(state: Any, message: Message, now: Context) -> Iterator[Message]:
        for said in lifecycle.decide(state, message, now):
            yield said
            if isinstance(said, NodeUpdated) and said.phase == "cordoned" and said.removal:
                node = state.nodes[f"{said.zone}/{said.node}"]
                cordoned = replace(node, phase=said.phase, cordon=said.cordon, removal=said.removal)
                nodes = state.nodes.set(f"{said.zone}/{said.node}", cordoned)
                observed = NodeObserved(
                    zone=said.zone,
                    machine=said.node,
                    assignment=said.assignment,
                    unschedulable=True,
                    cordon=said.cordon,
                )
                yield from lifecycle.decide(replace(state, nodes=nodes), observed, now)

    breach = found(house("lifecycle", decide=decide))

    assert "while it works" in breach or "before anybody looked" in breach


def test_a_lifecycle_that_gives_up_no_silent_machine_is_found() -> None:
    def wakes(state: Any) -> datetime | None:
        return IMMEDIATELY if len(state.stale) else None

    breach = found(house("lifecycle", wakes=wakes))

    assert "nor was given up" in breach


def test_a_preemption_that_is_half_a_minute_early_is_found() -> None:
    preemption = named("preemption")
    early = timedelta(seconds=30)

    def decide(state: Any, message: Message, now: Context) -> Iterator[Message]:
        if isinstance(message, Wake):
            now = now._replace(time=now.time + early)
        return iter(preemption.decide(state, message, now))

    def wakes(state: Any) -> Any:
        due = preemption.wakes(state)
        return None if due is None else due - early

    breach = found(house("preemption", decide=decide, wakes=wakes))

    assert "moves on early" in breach


def test_an_aggregator_that_miscounts_is_found() -> None:
    aggregator = named("aggregator")

    def evolve(state: Any, message: Message, now: Context) -> Any:
        if isinstance(message, CWNodeDeleted) and not message.registered:
            return state
        return aggregator.evolve(state, message, now)

    breach = found(house("aggregator", evolve=evolve))

    assert "do not add up" in breach or "says another thing" in breach


def test_a_service_that_remembers_more_than_its_state_is_found() -> None:
    fleet, calls = named("fleet"), count()

    def evolve(state: Any, message: Message, now: Context) -> Any:
        state = fleet.evolve(state, message, now)
        if isinstance(message, MachineAdded):
            machine = replace(state.machines[message.machine_key], boot_s=float(next(calls) % 7))
            return replace(state, machines=state.machines.set(message.machine_key, machine))
        return state

    breach = found(house("fleet", evolve=evolve))

    assert "is another after reading the log again" in breach


@dataclass
class Unfenced(Log):
    """A log that stores whatever a replica proposes, whoever spoke before."""

    def commit(self, proposal: Proposal[object]) -> int | None:
        self.last_commits[proposal.service] = proposal.expected_sequence
        return super().commit(proposal)


@dataclass
class Forgetful(Log):
    """A log that loses the last output of every seventh commit."""

    commits: Iterator[int] = field(default_factory=count)

    def commit(self, proposal: Proposal[object]) -> int | None:
        position = super().commit(proposal)
        if position is not None and next(self.commits) % 7 == 6:
            lost = self.entries[-2]
            self.entries[-2] = lost._replace(subject="np.lost")
        return position


def test_a_log_without_a_fence_is_found() -> None:
    assert found(services(), Unfenced)


def test_a_log_that_loses_an_answer_is_found() -> None:
    assert found(services(), Forgetful)
