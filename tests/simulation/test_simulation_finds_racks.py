"""The simulation finds each fault in how racks are given, given up and cordoned, put in."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

import pytest

from allocator.choose import Surplus, place, surplus_racks
from allocator.members import Member
from flow.test_audit import removal_faults, turn_faults
from flow.test_racks import (
    add,
    given_a_rack_that_leaves_with_pods,
    given_a_surplus_while_a_part_of_a_rack_is_busy,
    given_an_incomplete_rack_and_a_lower_priority,
    given_racks,
    want,
)
from nodepool.contract.model import ScaleDownStrategy
from nodepool.explanation import documents
from nodepool.explanation.documents import MachineFacts
from nodepool.explanation.facts import Domain, Facts
from nodepool.explanation.remedies import AddMachines
from nodepool.placement.racks import Delivery, count_racks, deliveries, lacking
from support.audit.auditor import violations
from support.audit.facts import Violation
from support.simulation.advice import check_advice
from support.simulation.faults import Plant, violation_of
from support.simulation.profile import FEW_RACKS, LENT_RACKS, NVLINK
from support.world_harness import WorldHarness


def node_by_node(
    members: Iterable[tuple[str, Member]], size: int, wanted: int, strategy: ScaleDownStrategy
) -> Surplus:
    """The Nodes that are too many, whichever racks they are of."""
    staying = sorted((each for each in members if each[1].removal is None), key=place)
    count = max(0, len(staying) - wanted * size)
    is_any = strategy is ScaleDownStrategy.PREFER_IDLE
    leaving = [node for node, member in staying if is_any or not member.active]
    return Surplus(count, leaving[:count])


def longer_instead(
    members: Iterable[tuple[str, Member]], size: int, wanted: int, strategy: ScaleDownStrategy
) -> Surplus:
    """As many idle racks as are too many, though they are longer than a busy one that is."""
    staying = [each for each in members if each[1].removal is None]
    busy = {member.domain for _, member in staying if member.active}
    idle = [each for each in staying if each[1].domain not in busy]
    counts = [Counter(member.domain for _, member in nodes) for nodes in (staying, idle)]
    racks, idle_racks = (count_racks(size, each.values()) for each in counts)
    right = surplus_racks(staying, size, wanted, strategy)
    if size == 1 or strategy is ScaleDownStrategy.PREFER_IDLE or racks <= wanted:
        return right
    kept = max(0, idle_racks - (racks - wanted))
    return Surplus(right.nodes, surplus_racks(idle, size, kept, strategy).leaving)


def without_leaving(
    size: int, _racks: int, held: Mapping[str, int], _leaving: object = None
) -> list[Delivery]:
    """What completes the racks held in part, those included that leave."""
    return lacking(size, sum(held.values()), held)


def counted_as_whole(
    size: int,
    goal: int,
    held: Mapping[str, int],
    free: Mapping[str, int],
    parts: Iterable[Delivery],
    offered: int,
) -> list[Delivery]:
    """What a NodePool can be given if the machines that its racks lack cost it positions."""
    whole = -(-offered // size) * size
    return deliveries(size, min(goal, sum(held.values()) + whole), held, free, parts, offered)


def as_whole_racks(count: int, domain: str = "", *, in_racks: bool = False) -> AddMachines:
    """The advice to add whole racks wherever no NVLink domain is named."""
    return AddMachines(count, domain, in_racks=in_racks or not domain)


PLANTS: Mapping[str, Plant] = {
    "a part of a rack is given up": Plant(
        "gives up a part of a rack",
        replace(NVLINK, steps=3_000),
        (),
        {"allocator.shrink.surplus_racks": node_by_node},
        seed=1,
    ),
    "a rack that lost too many Nodes is used as before": Plant(
        "missing were lost",
        replace(NVLINK, steps=3_000),
        (),
        {"lifecycle.racks.UNAVAILABLE_MAX": 18},
        seed=3,
    ),
    "racks go to whoever waits longest, whatever the priorities": Plant(
        "has to be Sufficient",
        FEW_RACKS,
        (),
        {
            "nodepool.placement.ranking.Waiting.order": property(
                lambda waiting: (0, waiting.since, waiting.key)
            )
        },
    ),
    "machines without an NVLink domain are advised as whole racks": Plant(
        "what is advised is refused",
        LENT_RACKS,
        functions={"nodepool.explanation.rack_remedies.AddMachines": as_whole_racks},
        seed=2,
    ),
}
"""What is wrong, and how it is put into the services."""


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_in_racks_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    violation = violation_of(plant, monkeypatch)

    assert plant.text in violation


def test_a_whole_rack_that_leaves_in_the_place_of_a_part_of_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given an allocator that gives up racks that are longer than a busy one, which few seeds show
    monkeypatch.setattr("allocator.shrink.surplus_racks", longer_instead)
    world = WorldHarness()

    given_a_surplus_while_a_part_of_a_rack_is_busy(world)

    assert "Nodes in racks, and" in removal_faults(tuple(world.entries()))[0]


def test_a_pool_that_is_passed_over_for_its_incomplete_rack_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given turns in which an incomplete rack costs a NodePool the next rack
    monkeypatch.setattr("nodepool.placement.plan.deliveries", counted_as_whole)
    world = WorldHarness()

    given_an_incomplete_rack_and_a_lower_priority(world)
    add(world, {"count": 18, "inRacks": True})

    faults = turn_faults(tuple(world.entries()))
    assert "before acme/prod/train, which has a higher rank" in faults[0]


def test_a_node_of_a_rack_that_leaves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # given an allocator that completes each rack, by a rare course of events that no seed has taken
    monkeypatch.setattr("nodepool.placement.plan.lacking", without_leaving)
    world = WorldHarness()

    given_a_rack_that_leaves_with_pods(world, 2, "n35")

    assert "of a rack that" in violations(world.world.log.entries)[0]


def test_a_reserved_node_that_counts_for_its_rack_in_an_explanation_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_reserved(machines: Iterable[MachineFacts], pool: Facts) -> dict[str, Domain]:
        return count(
            machines,
            replace(pool, nodes=tuple(replace(node, reserved=False) for node in pool.nodes)),
        )

    # given a rack of which the control plane has a Node
    count = documents._domains
    world = WorldHarness()
    given_racks(world, 1)
    want(world, 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    check_advice(world.world, Random(0), most=9)

    # when an explanation counts the Node among those that the NodePool can use
    monkeypatch.setattr(documents, "_domains", with_reserved)

    with pytest.raises(Violation, match="another NVLink domain"):
        check_advice(world.world, Random(0), most=9)
