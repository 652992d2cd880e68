"""The simulation finds each fault in how racks are given, given up and cordoned, put in."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from allocator.choose import Surplus, place
from allocator.members import Member
from nodepool.contract.model import ScaleDownStrategy
from support.simulation.faults import Plant, violation_of
from support.simulation.profile import NVLINK


def node_by_node(
    members: Iterable[tuple[str, Member]], size: int, wanted: int, strategy: ScaleDownStrategy
) -> Surplus:
    """The Nodes that are too many, whichever racks they are of."""
    staying = sorted((each for each in members if each[1].removal is None), key=place)
    count = max(0, len(staying) - wanted * size)
    is_any = strategy is ScaleDownStrategy.PREFER_IDLE
    leaving = [node for node, member in staying if is_any or not member.active]
    return Surplus(count, leaving[:count])


PLANTS: Mapping[str, Plant] = {
    "a part of a rack is given up": Plant(
        "gives up a part of a rack",
        replace(NVLINK, steps=3_000),
        (),
        {"allocator.shrink.surplus_racks": node_by_node},
        seed=1,
    ),
    "a rack that lost too many Nodes is used as before": Plant(
        "are in triage",
        replace(NVLINK, steps=3_000),
        (),
        {"lifecycle.racks.UNAVAILABLE_MAX": 18},
        seed=3,
    ),
}
"""What is wrong, and how it is put into the services."""


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_in_racks_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    violation = violation_of(plant, monkeypatch)

    assert plant.text in violation
