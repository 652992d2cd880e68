"""The simulation finds each fault that is put into giving way, and into reclaims, on purpose."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from allocator import give_way, reclaim
from allocator.state import State
from capacity.needed import _Needs
from flow.test_spot_gives_way import given_a_newer_node_with_a_priority
from lifecycle import table
from lifecycle.node_events import draining
from nodepool.contract.events import NodePoolDeleting
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey
from nodepool.contract.messages import Message
from nodepool.contract.model import RemovalReason
from nodepool.placement.plan import Need
from preemption.decide import SERVICE as PREEMPTION
from support.audit.auditor import violations
from support.simulation.faults import Plant, hearing, violation_of
from support.simulation.planted import CALM, PREEMPTED
from support.simulation.profile import GIVING_WAY, SPOT
from support.world_harness import WorldHarness

PROFILE = replace(GIVING_WAY, steps=3_000)
LEAVING = replace(
    PREEMPTED,
    actions={**CALM, "scale": 20, "interfere": 150, "run_pod": 60, "stop_pod": 2, "preempt": 0},
)
DELETED = replace(SPOT, actions={**SPOT.actions, "delete": 30, "preempt": 60})
"""NodePools are deleted while their Nodes are preempted."""
order, match_needs, held_back = give_way._order, give_way.match_needs, reclaim.held_back


def newest_last(victim: Any) -> Any:
    """The place of a Node among those that may have to go, the most useful one first."""
    kind, batch, node = order(victim)
    return -kind, -batch, node


def by_priority_of_all(victim: Any) -> Any:
    """The place of a Node, as if the priority counted over all organisations."""
    kind, batch, node = order(victim)
    return 10 * victim.pool.spec.priority + kind, batch, node


def first_asked_first(
    state: State,
    offering: OfferingKey,
    taken: Mapping[PoolKey, int],
    failed: dict[PoolKey, str],
    now: datetime,
) -> tuple[list[Need], list[MachineKey]]:
    """As many requests are taken back as nobody needs, but those that were made first."""
    needed, unneeded = match_needs(state, offering, taken, failed, now)
    return needed, list(state.supply(offering).asked)[: len(unneeded)]


def none_outstanding(state: Any, offering: Any) -> Any:
    """The stock of an offering as if an operator had all machines that were asked for."""
    return replace(state.inventory.stock(offering), to_reclaim=0)


def none_coming(*_args: Any) -> int:
    """As if no machine were free, and none came back."""
    return 0


def none_given_way(*_args: Any) -> Iterator[Any]:
    """No Node ever gives way."""
    return iter(())


def not_held_back(*_args: Any) -> Iterator[Any]:
    """No machine is ever held back, or given back."""
    return iter(())


def one_more(state: Any, offering: Any, free: Any) -> Iterator[Any]:
    """One machine more is held back than was asked for."""
    count = state.stock(offering).to_reclaim
    if count:
        state = replace(state, inventory=state.inventory.reclaim(offering, count + 1))
    return held_back(state, offering, free)


def never_old(_log: Any, _wake: Any) -> bool:
    """As if each `Wake` were processed in the moment in which it is stored."""
    return False


def is_leaving(node: Any) -> bool:
    """Whether a preemption begins without a timetable: whatever runs on a Node that leaves."""
    return bool(node.booting or node.request > 0)


def without_deletions(_state: object, message: Message) -> Message | None:
    """Return no message for the deletion of a NodePool, and every other message."""
    return None if isinstance(message, NodePoolDeleting) else message


def drained_at_once(case: table.Case) -> table.Steps:
    """A preemption without a timetable drains its Node, whatever runs there."""
    node = case.node
    is_at_once = node.exit.reason is RemovalReason.PREEMPTED and not node.exit.has_timetable
    if is_at_once and node.is_cordoned and not node.cordon.is_drain_forced:
        return (yield draining(case.template, node).model_copy(update={"force": True}))
    return (yield from table.leave(case))


PLANTS = {
    "a Node goes that is worth more": Plant(
        "has to give way before", PROFILE, functions={"allocator.give_way._order": newest_last}
    ),
    "the Node that was asked first stays, and the last one goes": Plant(
        "need not give way, and",
        PROFILE,
        functions={"allocator.give_way.match_needs": first_asked_first},
        seed=6,
    ),
    "what an operator is to have is promised": Plant(
        "and has to be",
        PROFILE,
        functions={"capacity.state.State.stock": none_outstanding},
        seed=4,
    ),
    "what comes back is not counted": Plant(
        "spot Nodes have to give way, and",
        PROFILE,
        functions={"allocator.give_way.coming_count": none_coming},
    ),
    "more comes than a NodePool lacks": Plant(
        "needed is -", PROFILE, functions={"capacity.needed._Needs.of": _Needs._balance}
    ),
    "no Node gives way": Plant(
        "while the spot Nodes",
        PROFILE,
        functions={"allocator.decide.preempt_nodes": none_given_way},
    ),
    "what is to give way stays": Plant(
        "its preemption has not begun",
        PROFILE,
        functions={"preemption.node.Node.is_to_begin": False},
    ),
    "a warning names a moment that is long over": Plant(
        "after its moment",
        replace(PROFILE, late=("preemption",), hurries=0.02),
        functions={"nodepool.engine.world.Log.is_old": never_old},
        seed=25,
    ),
    "a Node that waits for its Pods is drained without a warning": Plant(
        "without a warning while Pods run on it",
        LEAVING,
        functions={
            "preemption.node.Node.is_going": property(is_leaving),
            "lifecycle.table.PARTS": (*table.PARTS[:-1], drained_at_once),
        },
        seed=161,
    ),
    "a Node is warned that goes with its NodePool": Plant(
        "is warned, and goes with its NodePool",
        DELETED,
        (hearing(PREEMPTION, without_deletions),),
        seed=5,
    ),
    "nothing is held back": Plant(
        "are reclaimed, though", PROFILE, functions={"allocator.decide.held_back": not_held_back}
    ),
    "more is held back than was asked for": Plant(
        "more machines are reclaimed", PROFILE, functions={"allocator.decide.held_back": one_more}
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_of_giving_way_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)


def test_a_priority_that_moves_a_preemption_to_another_organisation_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given an order in which the priority counts over all organisations, which few seeds show
    monkeypatch.setattr("allocator.give_way._order", by_priority_of_all)
    world = WorldHarness()

    given_a_newer_node_with_a_priority(world)
    world.apply("train", 1)

    assert "have to give way, not" in violations(world.world.log.entries)[0]
