"""The simulation finds each fault that is put into giving way, and into reclaims, on purpose."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from allocator import give_way, reclaim
from support.simulation.faults import Plant, violation_of
from support.simulation.profile import GIVING_WAY

PROFILE = replace(GIVING_WAY, steps=3_000)
order, held_back = give_way._order, reclaim.held_back


def newest_last(victim: Any) -> Any:
    """The place of a Node among those that may have to go, the most useful one first."""
    kind, batch, node = order(victim)
    return -kind, -batch, node


def none_outstanding(*_args: Any) -> int:
    """As if an operator had all machines that were asked for."""
    return 0


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
    if state.supply(offering).to_reclaim:
        state = replace(
            state,
            supplies=state.supplies.set(
                offering,
                replace(state.supply(offering), to_reclaim=state.supply(offering).to_reclaim + 1),
            ),
        )
    return held_back(state, offering, free)


PLANTS = {
    "a Node goes that is worth more": Plant(
        "has to give way before", PROFILE, functions={"allocator.give_way._order": newest_last}
    ),
    "what an operator is to have is promised": Plant(
        "and has to be",
        PROFILE,
        functions={"capacity.state.State.outstanding": none_outstanding},
        seed=4,
    ),
    "what comes back is not counted": Plant(
        "spot Nodes have to give way, and",
        PROFILE,
        functions={"allocator.give_way.coming_count": none_coming},
    ),
    "no Node gives way": Plant(
        "while the spot Nodes", PROFILE, functions={"allocator.decide.preempted": none_given_way}
    ),
    "what is to give way stays": Plant(
        "its preemption has not begun",
        PROFILE,
        functions={"preemption.state.Node.is_to_begin": False},
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
