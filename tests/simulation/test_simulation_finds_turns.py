"""The simulation finds each fault that is put into turns and into victims on purpose."""

from dataclasses import replace
from typing import Any, TypeVar

import pytest

from allocator import changes
from nodepool.contract.conditions import Validated
from nodepool.contract.model import NodePoolSpec
from nodepool.placement.claims import Claimant
from nodepool.placement.waits import Wait
from support.simulation.faults import Plant, violation_of
from support.simulation.planted import SHRUNK, WRONG
from support.simulation.profile import GIVING_WAY

P = TypeVar("P", bound=Claimant)
PROFILE = replace(GIVING_WAY, steps=3_000)
after_loss, cancelled = Wait.after_loss, changes._cancel_removal


def from_the_start(wait: Wait, held: int, now: Any) -> Wait:
    """Return the wait after a loss as if the NodePool had waited ever since its last grant."""
    return after_loss(wait, held, wait.since or now)


def keep_place(pool: P, generation: int, spec: NodePoolSpec, reason: Validated) -> P:
    """Return the NodePool with another desired state, which keeps its place whatever was wrong."""
    is_invalid = reason is Validated.INVALID
    known = replace(pool, generation=generation, spec=spec, invalid=is_invalid)
    if reason is not Validated.VALID:
        return replace(known, valid=False)
    return replace(known, valid=True, wait=pool.wait.with_target(spec.target, pool.held))


def kept_at_once(member: Any) -> Any:
    """Return a Node whose removal was cancelled as one that stays for certain."""
    return replace(cancelled(member), is_cancelled=False)


def never_exact(*_args: Any) -> bool:
    """Return False, as if a position that is wrong by less than a tenth could stay wrong."""
    return False


PLANTS = {
    "priorities count across organisations": Plant(
        "has a higher rank", PROFILE, functions={"nodepool.placement.ranking.Waiting.group": "all"}
    ),
    "a replacement overtakes": Plant(
        "has to wait since",
        PROFILE,
        functions={"nodepool.placement.waits.Wait.after_loss": from_the_start},
    ),
    "an invalid version keeps its place": Plant(
        "has to wait since",
        WRONG,
        functions={"nodepool.placement.claims.Claimant.with_spec": keep_place},
    ),
    "small changes of positions are never shown": Plant(
        "the positions do not add up", PROFILE, functions={"capacity.decide.is_exact": never_exact}
    ),
    "a cancellation that comes too late is not counted": Plant(
        "removed", SHRUNK, functions={"allocator.changes._cancel_removal": kept_at_once}
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_of_turns_or_victims_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
