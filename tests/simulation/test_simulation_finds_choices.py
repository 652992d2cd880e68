"""The simulation finds each fault that is put into choices made once and never looked at again."""

from dataclasses import replace
from typing import Any

import pytest

from aggregator.figures import grants
from nodepool.contract.keys import PoolKey
from nodepool.state.queue import Queue
from quota.ledger import Ledger
from support.simulation.faults import Plant, violation_of
from support.simulation.planted import WRONG
from support.simulation.profile import CROWDED, GIVING_WAY, MIXED, SLURM

LIMITED = replace(CROWDED, actions={**CROWDED.actions, "change_limit": 30})
acknowledged, by_creation = grants.acknowledge_grant, Ledger.by_creation


def cost_without_cordons(member: Any) -> int:
    """How much is lost with a Node, as if a cordoned Node were worth as much as any other."""
    return 1 + 2 * member.active if member.registered else 0


AT_WORK = replace(
    GIVING_WAY,
    limits=(12,),
    actions={"scale": 60, "run_pod": 80, "stop_pod": 30, "batch": 4},
)
"""Most Nodes are at work while NodePools grow and shrink."""


def none_exchanged(*_args: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """No idle Node takes the place of a victim that waits for its Pods."""
    return (), ()


def newest_first(ledger: Ledger, pools: Any) -> Queue[PoolKey]:
    """The NodePools of a ledger, the youngest first."""
    queue: Queue[PoolKey] = Queue()
    for key in reversed(list(by_creation(ledger, pools))):
        queue = queue.put(key)
    return queue


def known_only(known: Any, event: Any) -> Any:
    """The grants after an acknowledgement, which changes nothing if its grant is unknown."""
    is_known = event.final or event.number in dict(known.grants)
    return acknowledged(known, event) if is_known else known


PLANTS = {
    "a cordoned Node is as good a victim as any other": Plant(
        "others cost less",
        MIXED,
        functions={"allocator.choose.cost": cost_without_cordons},
        seed=14,
    ),
    "a victim that waits for its Pods is never exchanged": Plant(
        "waits for Pods at",
        AT_WORK,
        functions={"allocator.shrink._choose_exchange": none_exchanged},
        seed=45,
    ),
    "a lowered limit makes the oldest NodePool wait last": Plant(
        "waits for since",
        LIMITED,
        functions={"quota.ledger.Ledger.by_creation": newest_first},
        seed=7,
    ),
    "a grant that an invalid NodePool was given is not acknowledged": Plant(
        "reserved: ",
        WRONG,
        functions={"aggregator.figures.limits.acknowledge_grant": known_only},
        seed=85,
    ),
    "a lock that ended is shown as work": Plant(
        "left undone", SLURM, functions={"lifecycle.table.STEPS_MAX": 1}, seed=37
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_choice_that_nobody_revisits_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
