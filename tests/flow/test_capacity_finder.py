"""The Capacity Finder: which zones are likely to have so many spot Nodes of some types.

It is that of https://docs.coreweave.com/platform/capacity-plans/capacity-finder.
"""

import pytest

from nodepool.contract.catalog import ZONES, Access
from nodepool.contract.events import CapacityFound
from support.constants import A100, H100, ORG, WEST, ZONE
from support.harness import Harness
from support.paths import org_path
from support.world_harness import WorldHarness

OHIO = "US-EAST-06A"
YES, NO = "cluster", "no cluster"


def find(harness: Harness, *selections: tuple[str, int], org: str = ORG) -> str:
    """Sends a query; its id."""
    items = [{"instanceType": name, "count": count} for name, count in selections]
    return harness.send("FindCapacity", org_path(org), {"selections": items})


def found(harness: Harness, id: str) -> list[CapacityFound]:
    """The answers to a query."""
    return [
        envelope.data
        for envelope in harness.envelopes()
        if envelope.correlationid == id and isinstance(envelope.data, CapacityFound)
    ]


def zones(harness: Harness, id: str) -> list[str]:
    """The zones that offer what was asked for, each with its tags, in their order."""
    (answer,) = found(harness, id)
    assert len(answer.zones) == sum(zone.access is Access.GENERAL for zone in ZONES.values())
    return [
        f"{each.zone}: {', '.join(each.tags)}, {YES if each.has_cluster else NO}"
        for each in answer.zones
        if each.availability != "SKU unavailable"
    ]


def test_zones_are_ranked_by_what_they_have_now(harness: Harness) -> None:
    # given machines in three zones, a cluster in two of them, and a NodePool that holds some
    harness.given_data_center(machines=5)
    harness.given_cluster("west", zone=WEST)
    harness.given_machines(4, zone=WEST)
    harness.given_machines(4, zone=OHIO)
    harness.apply("train", 3)

    small, large = find(harness, (H100, 2)), find(harness, (H100, 4))

    # then a large count may have a worse tag than a small one in the same zone
    assert harness.outcomes(small) == ["done"]
    assert zones(harness, small)[:4] == [
        f"{ZONE}: Likely available, {YES}",
        f"{WEST}: Likely available, {YES}",
        f"{OHIO}: Likely available, {NO}",
        f"RNO2A: Not available, {NO}",
    ]
    assert zones(harness, large)[:4] == [
        f"{WEST}: Likely available, {YES}",
        f"{OHIO}: Likely available, {NO}",
        f"{ZONE}: Limited availability, {YES}",
        f"RNO2A: Not available, {NO}",
    ]


def test_several_types_are_ranked_by_the_one_that_is_hardest_to_have(harness: Harness) -> None:
    harness.given_data_center(machines=5)
    harness.given_machines(2, A100)
    harness.given_machines(9, H100, zone="RNO2A")

    id = find(harness, (H100, 5), (A100, 2))

    assert zones(harness, id) == [
        f"{ZONE}: Likely available, Likely available, {YES}",
        f"RNO2A: Likely available, Not available, {NO}",
    ]


def test_machines_that_nodepools_wait_for_are_only_possibly_available(
    world: WorldHarness,
) -> None:
    # given four machines, and a NodePool that is about to be assigned three
    world.given_data_center(machines=4)
    with world.paused("allocator"):
        world.apply("train", 3)
        one, two = find(world, (H100, 1)), find(world, (H100, 2))
        answers = zones(world, one)[0], zones(world, two)[0]

    assert answers == (
        f"{ZONE}: Likely available, {YES}",
        f"{ZONE}: Possibly available, {YES}",
    )
    assert zones(world, find(world, (H100, 2)))[0] == f"{ZONE}: Limited availability, {YES}"


def test_machines_that_are_held_back_do_not_count(harness: Harness) -> None:
    harness.given_data_center(machines=3)
    harness.reclaim(1)

    both, all_three = find(harness, (H100, 2)), find(harness, (H100, 3))

    assert zones(harness, both)[0] == f"{ZONE}: Likely available, {YES}"
    assert f"{ZONE}: Not available, {YES}" in zones(harness, all_three)


def test_a_query_reserves_nothing(harness: Harness) -> None:
    harness.given_data_center(machines=4)
    find(harness, (H100, 4))

    harness.apply("train", 4)

    assert harness.node_counts("train") == (4, 0, 4)


def test_what_was_found_follows_a_pool_that_comes_and_goes(world: WorldHarness) -> None:
    # given a spot NodePool with all machines of a zone
    world.given_data_center(machines=2)
    before = zones(world, find(world, (H100, 2)))[0]
    world.apply("batch", 2, computeClass="spot")
    taken = zones(world, find(world, (H100, 2)))[0]

    # when it is deleted
    world.delete("batch")

    assert before == f"{ZONE}: Likely available, {YES}"
    assert taken == f"{ZONE}: Not available, {YES}"
    assert zones(world, find(world, (H100, 2)))[0] == before


def test_an_organisation_without_a_cluster_is_answered_too(harness: Harness) -> None:
    harness.given_data_center(machines=2)

    id = find(harness, (H100, 2), org="newcomer")

    assert zones(harness, id)[0] == f"{ZONE}: Likely available, {NO}"


def test_a_restarted_service_knows_the_clusters_and_machines_again(world: WorldHarness) -> None:
    world.given_data_center(machines=5)
    world.apply("train", 3)

    world.restart("capacity")

    assert zones(world, find(world, (H100, 4)))[0] == f"{ZONE}: Limited availability, {YES}"


@pytest.mark.parametrize(
    ("selections", "refusal"),
    [
        ([], "selections: must have from 1 to 16 items, not 0"),
        ([(H100, 0)], "selections[0].count: input should be greater than or equal to 1"),
        (
            [("gd-8xh100", 1)],
            "selections[0].instanceType: gd-8xh100 is not a known instance type;"
            " did you mean gd-8xh100ib-i128?",
        ),
        (
            [(H100, 1), ("gb200-4x", 18)],
            "selections[1].instanceType: gb200-4x is a Superchip instance type,"
            " which is not offered as spot",
        ),
        (
            [(H100, 1), (H100, 1)],
            f"selections[1].instanceType: {H100} is selected twice;"
            " select each type once, with the sum of Nodes",
        ),
    ],
)
def test_a_query_that_cannot_be_answered_is_refused(
    world: WorldHarness, selections: list[tuple[str, int]], refusal: str
) -> None:
    world.given_data_center()

    id = find(world, *selections)

    assert world.outcomes(id) == [f"Invalid {refusal}"]
    assert found(world, id) == []


def test_a_query_that_is_sent_again_has_the_same_outcome_and_no_new_answer(
    harness: Harness,
) -> None:
    harness.given_data_center()
    id = find(harness, (H100, 1))

    harness.resend(id)

    assert harness.outcomes(id) == ["done", "done"]
    assert len(found(harness, id)) == 1
