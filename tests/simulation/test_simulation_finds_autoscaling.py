"""The simulation finds each fault that is put into autoscaling on purpose."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from autoscaler.decide import SERVICE as AUTOSCALER
from autoscaler.ledger import Ledger
from autoscaler.pool import Pool, Waiting
from autoscaler.target import Advice, advice, next_change
from nodepool.contract.events import NodePoolAutoscaled, PodChanged
from support.simulation.faults import Plant, hearing, violation_of, without_wakes
from support.simulation.profile import AUTOSCALED, ON_THEIR_WAY
from validator.decide import SERVICE as VALIDATOR

PROFILE = replace(AUTOSCALED, steps=3_000)

UNCOMMANDED = replace(
    PROFILE,
    limits=(12, 14),
    actions={
        **AUTOSCALED.actions,
        "apply": 2,
        "scale": 0,
        "scale_down_and_up": 0,
        "preempt": 0,
        "request_pod": 120,
        "withdraw_pod": 40,
    },
)
"""The autoscaler raises targets that no command has ever set."""


def of_any_generation(state: Any, message: Any) -> Any:
    """A target for an earlier generation, taken as if it were for the one that is stored."""
    pool = state.pools.get(getattr(message, "key", ""))
    if not isinstance(message, NodePoolAutoscaled) or pool is None:
        return message
    return message.model_copy(update={"generation": pool.stored.generation})


def without_pods(_state: Any, message: Any) -> Any:
    """Pods that never wait."""
    return None if isinstance(message, PodChanged) else message


def heedless(function: Any) -> Any:
    """The function, which takes a NodePool for one without Pods where these ask for nothing."""

    def instead(pool: Pool, *arguments: Any) -> Any:
        right = function(pool, *arguments)
        return right or function(replace(pool, waiting=Waiting()), *arguments)

    return instead


def too_early(pool: Pool, ledger: Ledger, now: datetime) -> Advice | None:
    """A Node less, of a NodePool that the autoscaler has just given one more."""
    lower = Advice(pool.spec.target - 1, "it was raised")
    return lower if is_just_raised(pool) else advice(pool, ledger, now)


def is_just_raised(pool: Pool) -> bool:
    """Whether the autoscaler has raised a target, which no command has ever set."""
    is_lowerable = pool.is_autoscaled and not pool.proposed and pool.commanded is None
    return is_lowerable and pool.raised is not None and pool.spec.target > pool.bounds[0]


HEEDLESS = {
    "autoscaler.decide.advice": heedless(advice),
    "autoscaler.target.next_change": heedless(next_change),
    "autoscaler.state.next_change": heedless(next_change),
}
PLANTS = {
    "a target that is for another generation": Plant(
        "that the autoscaler did not have for it", PROFILE, (hearing(VALIDATOR, of_any_generation),)
    ),
    "a command that does not stand": Plant(
        "was set by a command just before",
        PROFILE,
        functions={"autoscaler.target.DELAY_AFTER_COMMAND": timedelta()},
    ),
    "a target that is lowered right after it was raised": Plant(
        "was raised just before",
        UNCOMMANDED,
        functions={
            "autoscaler.decide.advice": too_early,
            "autoscaler.state.advice": too_early,
            "autoscaler.state.next_change": lambda pool: (
                pool.raised if is_just_raised(pool) else next_change(pool)
            ),
        },
    ),
    "bounds that do not hold": Plant(
        "may not have", PROFILE, functions={"autoscaler.pool.Pool.bounds": (0, 100)}
    ),
    "a limit that does not count": Plant(
        "than quota allows",
        PROFILE,
        functions={"autoscaler.ledger.Ledger.room_with": lambda _ledger, _own: 100},
        seed=101,
    ),
    "Pods that are not heard of": Plant(
        "waits, and ", PROFILE, (hearing(AUTOSCALER, without_pods),)
    ),
    "Pods that wait while idle Nodes are given up": Plant(
        " goes down to ",
        PROFILE,
        functions=HEEDLESS,
    ),
    "Nodes on their way that are taken for idle": Plant(
        "Nodes on their way",
        replace(ON_THEIR_WAY, steps=3_000),
        functions={"autoscaler.state.COMING": ()},
    ),
    "a missing Node that is given up too early": Plant(
        "been missing in",
        PROFILE,
        functions={"autoscaler.target.UNNEEDED_AFTER": timedelta(minutes=2)},
    ),
    "a moment that is forgotten": Plant("is idle, and", PROFILE, (without_wakes(AUTOSCALER),)),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_of_autoscaling_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)


def test_the_bounds_that_a_plant_takes_away_are_there() -> None:
    assert isinstance(Pool.bounds, property)
