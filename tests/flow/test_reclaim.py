"""An operator reclaims machines: they are held back from all NodePools until they are returned."""

import pytest

from nodepool.contract.availability import Availability
from nodepool.contract.conditions import Capacity
from nodepool.contract.events import CapacityChecked, CapacityFound
from nodepool.placement.racks import NVLINK_DOMAIN
from support.constants import H100, ORG, ZONE
from support.harness import Harness
from support.paths import org_path
from support.services import NAMES
from support.world_harness import WorldHarness

RACK_ZONE, RACK_TYPE = "US-EAST-01A", "gb200-4x"


def given_spot(world: Harness, nodes: int, machines: int) -> None:
    """A spot NodePool of so many Nodes in a data center of so many machines; recording starts."""
    world.given_data_center(machines=machines)
    world.grow("cheap", nodes, computeClass="spot")
    world.start_recording()


def counts(world: Harness, kind: str = H100) -> tuple[object, object, object]:
    """How many machines are free, assigned and reclaimed."""
    item = world.documents("capacity")[f"{ZONE}/{kind}"]
    return item["free"], item["assigned"], item["reclaimed"]


def test_free_machines_are_reclaimed_first(harness: Harness) -> None:
    given_spot(harness, 1, machines=3)

    command = harness.reclaim(2)

    assert harness.outcomes(command) == ["done"]
    assert counts(harness) == (0, 1, 2)
    assert harness.events("cheap") == []


def test_a_reclaimed_machine_is_listed_and_belongs_to_no_pool(harness: Harness) -> None:
    given_spot(harness, 1, machines=2)

    harness.reclaim(1)

    statuses = [str(document["status"]) for document in harness.documents("machines").values()]
    assert "{'state': 'Reclaimed'}" in statuses


def test_spot_nodes_are_preempted_for_the_rest_and_their_machines_held_back(
    world: WorldHarness,
) -> None:
    given_spot(world, 3, machines=4)

    world.reclaim(3)
    at_once = counts(world)
    world.pass_time(minutes=8)

    assert at_once == (0, 3, 1)
    assert counts(world) == (0, 1, 3)
    assert world.nodes("cheap") == ["n1"]
    assert world.timed_events("cheap")[:2] == [
        "0:00 PreemptionPending n3",
        "0:00 PreemptionPending n2",
    ]


def test_the_pool_that_lost_a_machine_does_not_take_it_again(world: WorldHarness) -> None:
    given_spot(world, 2, machines=2)
    world.reclaim(1)
    world.pass_time(minutes=8)

    world.scale("cheap", 5)
    world.apply("train", 1)
    world.pass_time(minutes=30)

    assert counts(world) == (0, 1, 1)
    assert world.nodes("cheap") == []
    assert world.nodes("train") == ["n1"]


def test_what_is_returned_goes_to_those_that_wait(world: WorldHarness) -> None:
    given_spot(world, 2, machines=2)
    world.reclaim(2)
    world.pass_time(minutes=8)

    some = world.give_back(1)
    after_some = counts(world)
    world.give_back(1)

    assert world.outcomes(some) == ["done"]
    assert after_some == (0, 1, 1)
    assert counts(world) == (0, 2, 0)
    assert world.node_counts("cheap") == (2, 0, 2)


def test_what_is_returned_before_it_is_held_is_no_longer_waited_for(world: WorldHarness) -> None:
    given_spot(world, 2, machines=2)
    world.reclaim(2)
    world.pass_time(minutes=1)

    world.give_back(2)
    world.pass_time(minutes=8)

    # then the preemptions that had begun are carried out, and the NodePool refills
    assert counts(world) == (0, 2, 0)
    assert world.node_counts("cheap") == (2, 0, 2)


def test_an_operator_comes_before_a_default_pool(world: WorldHarness) -> None:
    given_spot(world, 1, machines=1)
    world.apply("train", 1)

    world.reclaim(1)
    world.pass_time(minutes=8)

    assert world.nodes() == []
    assert counts(world) == (0, 0, 1)


def test_a_booting_spot_node_is_reclaimed_at_once(world: WorldHarness) -> None:
    world.given_data_center(machines=1, boot_s=600)
    world.apply("cheap", 1, computeClass="spot")

    world.reclaim(1)

    assert counts(world) == (0, 0, 1)


def test_a_machine_that_goes_to_triage_is_made_up_for(world: WorldHarness) -> None:
    # given a Node that is to leave, whose machine does not answer
    given_spot(world, 2, machines=2)
    world.break_machines("n2", fault="hang")
    world.scale("cheap", 1)

    # when one is reclaimed, for which that would be enough
    world.reclaim(1)
    world.pass_time(minutes=5)
    waiting = world.nodes("cheap")
    world.pass_time(minutes=4)

    # then another Node gives way once the first is unhealthy: its machine will not be free
    assert waiting == ["n1", "n2"]
    assert counts(world) == (0, 1, 1)
    assert world.nodes("cheap") == ["n2"]


def test_a_count_that_cannot_be_is_refused(harness: Harness) -> None:
    given_spot(harness, 2, machines=3)

    none, less, more = (harness.reclaim(count) for count in (0, -1, 4))

    assert harness.outcomes(none)[0].startswith("Invalid count")
    assert harness.outcomes(less)[0].startswith("Invalid count")
    assert harness.outcomes(more)[0].startswith(
        f"Invalid count: at most 3 machines of {H100} in {ZONE} can be reclaimed, "
        "not 4: 1 free and 2 spot Nodes"
    )
    assert counts(harness) == (1, 2, 0)
    assert harness.events("cheap") == []


def test_what_is_still_to_be_reclaimed_cannot_be_reclaimed_again(world: WorldHarness) -> None:
    given_spot(world, 2, machines=2)
    world.reclaim(1)

    command = world.reclaim(2)

    assert world.outcomes(command) == [
        f"Invalid count: at most 1 machine of {H100} in {ZONE} can be reclaimed, not 2: "
        "0 free and 2 spot Nodes, less 1 still to be reclaimed"
    ]


def test_nodes_of_default_pools_are_not_reclaimed(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 1)

    command = world.reclaim(1)

    assert world.outcomes(command)[0].startswith("Invalid count: at most 0 machines")


def test_an_unknown_type_or_zone_is_refused(world: WorldHarness) -> None:
    world.given_data_center()

    commands = [
        world.reclaim(1, "gd-9xh100"),
        world.reclaim(1, zone="MOON-01A"),
        world.reclaim(1, "gd-4xgb200"),
        world.give_back(1, "gd-9xh100"),
    ]

    outcomes = [world.outcomes(command)[0] for command in commands]
    assert [text.partition(":")[0] for text in outcomes] == [
        "Invalid instanceType",
        "Invalid zone",
        "Invalid instanceType",
        "Invalid instanceType",
    ]


def test_more_than_is_held_back_cannot_be_returned(world: WorldHarness) -> None:
    given_spot(world, 0, machines=2)
    world.reclaim(1)

    command = world.give_back(2)

    assert world.outcomes(command) == [
        f"Invalid count: at most 1 machine of {H100} in {ZONE} can be returned, not 2"
    ]
    assert counts(world) == (1, 0, 1)


def test_a_repeated_command_reclaims_once(world: WorldHarness) -> None:
    given_spot(world, 0, machines=3)
    command = world.reclaim(1)

    world.resend(command)

    assert counts(world) == (2, 0, 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_in_between_changes_nothing(world: WorldHarness, name: str) -> None:
    given_spot(world, 3, machines=4)
    world.reclaim(3)
    world.restart(name)
    world.pass_time(minutes=1)

    world.restart(name)
    world.pass_time(minutes=8)
    world.restart(name)
    world.give_back(1)

    assert counts(world) == (0, 2, 2)
    assert sum("PreemptionPending" in line for line in world.events("cheap")) == 2


def test_a_machine_that_is_just_returned_spares_a_spot_node(world: WorldHarness) -> None:
    given_spot(world, 1, machines=2)
    world.reclaim(1)

    with world.sent_together():
        world.give_back(1)
        world.apply("train", 1)

    assert world.nodes("train") == ["n2"]
    assert world.nodes("cheap") == ["n1"]
    assert "PreemptionPending n1" not in world.events("cheap")


def test_what_an_operator_is_still_to_have_is_promised_to_no_pool(world: WorldHarness) -> None:
    # given a Node that an operator is to have, and a NodePool that wants it
    given_spot(world, 1, machines=1)
    world.reclaim(1)
    world.apply("train", 1)
    world.pass_time(minutes=8)

    # then the NodePool was never told that there is enough, and was warned once
    told = [line for line in world.events("train") if "Insufficient" in line]
    checks = [envelope.data for envelope in world.envelopes_of("train")]
    reasons = {check.reason for check in checks if isinstance(check, CapacityChecked)}
    assert told == ["CWInsufficientCapacity"]
    assert reasons == {Capacity.NONE_AVAILABLE}


def test_a_rack_that_an_operator_is_still_to_have_is_promised_to_no_pool(
    world: WorldHarness,
) -> None:
    given_racks(world, 18)
    world.given_quota(18, RACK_TYPE, zone=RACK_ZONE)

    # when the capacity is checked before the rack is held back
    with world.paused("allocator"):
        world.reclaim(18, RACK_TYPE, zone=RACK_ZONE)
    with world.paused("capacity"):
        world.apply("acme/edge/train", 18, RACK_TYPE)

    assert world.conditions("acme/edge/train")["Capacity"] == "NoneAvailable"


def test_the_capacity_finder_leaves_out_what_an_operator_is_still_to_have(
    world: WorldHarness,
) -> None:
    given_spot(world, 2, machines=3)
    world.reclaim(2)

    world.send("FindCapacity", org_path(ORG), {"selections": [{"instanceType": H100, "count": 2}]})

    answers = [each.data for each in world.envelopes() if isinstance(each.data, CapacityFound)]
    (found,) = (zone for zone in answers[0].zones if zone.zone == ZONE)
    assert found.availability is Availability.NOT_AVAILABLE


def test_nodes_that_cannot_come_back_cannot_be_reclaimed(world: WorldHarness) -> None:
    # given a Node whose machine goes to triage, and one that takes an hour to leave
    world.given_data_center(machines=3)
    world.apply("cheap", 2, computeClass="spot")
    world.apply("gone", 1)
    world.run_pod("n3", interruption="graceful", graceS=3_600)
    world.delete("gone")
    world.break_machines("n2", fault="gpu-lost")

    command = world.reclaim(2)

    assert world.outcomes(command) == [
        f"Invalid count: at most 1 machine of {H100} in {ZONE} can be reclaimed, not 2: "
        "0 free and 1 spot Node"
    ]


def test_a_spot_node_that_takes_long_to_leave_with_its_pool_can_be_reclaimed(
    world: WorldHarness,
) -> None:
    given_spot(world, 1, machines=1)
    world.run_pod("n1", interruption="graceful", graceS=86_400)
    world.delete("cheap")

    command = world.reclaim(1)
    world.pass_time(minutes=7)

    assert world.outcomes(command) == ["done"]
    assert counts(world) == (0, 0, 1)


def test_nodes_of_default_pools_that_leave_can_be_reclaimed(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.apply("old", 2)
    world.run_pod("n1", interruption="graceful", graceS=60)
    world.delete("old")

    command = world.reclaim(2)
    too_many = world.reclaim(1)
    world.pass_time(minutes=2)

    assert world.outcomes(command) == ["done"]
    assert counts(world) == (0, 0, 2)
    assert world.outcomes(too_many) == [
        f"Invalid count: at most 0 machines of {H100} in {ZONE} can be reclaimed, not 1: "
        "0 free, 0 spot Nodes and, on the way out, 1 Node, "
        "less 1 still to be reclaimed"
    ]


def given_racks(world: Harness, *domains: int) -> None:
    """So many free machines of a type that comes in racks, in each of some NVLink domains."""
    world.given_cluster("edge", zone=RACK_ZONE)
    for number, count in enumerate(domains, 1):
        labels = {NVLINK_DOMAIN: f"d{number}"}
        world.given_machines(count, RACK_TYPE, zone=RACK_ZONE, labels=labels)


def reclaimed_by_domain(world: Harness) -> list[int]:
    """How many machines of each NVLink domain are held back, the most first."""
    held = [
        str(document)
        for document in world.documents("machines").values()
        if "Reclaimed" in str(document["status"])
    ]
    return sorted((sum(f"'d{n}'" in text for text in held) for n in range(1, 99)), reverse=True)


def test_a_machine_that_goes_out_of_service_while_it_is_reclaimed_is_out_once_it_is_returned(
    world: WorldHarness,
) -> None:
    # given a machine that goes out of service before the allocator knows of it
    world.given_data_center(machines=2)
    with world.sent_together():
        world.reclaim(2)
        world.take_out("n1", "it is in maintenance: new fan")

    # when both are returned, and a NodePool wants them
    world.give_back(2)
    world.apply("train", 2)

    # then every service knows that it is still out of service
    assert world.nodes("train") == ["n2"]
    assert counts(world) == (0, 1, 0)
    assert world.conditions("train")["Capacity"] == "NoneAvailable"
    world.put_back("n1")
    assert world.nodes("train") == ["n1", "n2"]
    assert world.replay_differs() == []


def test_a_held_back_machine_that_is_out_of_service_is_shown_so_and_returned_last(
    world: WorldHarness,
) -> None:
    # given two machines that are held back, of which the first goes out of service
    world.given_data_center(machines=2)
    world.apply("train", 0)
    world.reclaim(2)
    world.take_out("n1", "it is in maintenance: new fan")
    held = world.machine_status("n1")

    # when they are returned one after the other
    world.scale("train", 2)
    world.give_back(1)
    first = world.nodes("train")
    world.give_back(1)

    # then the one in service comes first, and the other one is still out of service
    cause = "it is in maintenance: new fan"
    assert held == {"state": "Reclaimed", "cause": cause, "outOfService": True}
    assert first == world.nodes("train") == ["n2"]
    assert world.machine_status("n1") == {
        "state": "Triage",
        "cause": "it is in maintenance: new fan",
    }


def test_a_held_back_machine_that_is_in_service_again_shows_no_cause(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.reclaim(1)
    world.take_out("n1", "")
    out = world.machine_status("n1")

    world.put_back("n1")

    cause = "it is out of service"
    assert out == {"state": "Reclaimed", "cause": cause, "outOfService": True}
    assert world.machine_status("n1") == {"state": "Reclaimed"}


def test_a_whole_rack_is_returned_before_a_rack_with_a_machine_out_of_service(
    world: WorldHarness,
) -> None:
    given_racks(world, 18, 18)
    world.reclaim(36, RACK_TYPE, zone=RACK_ZONE)
    world.take_out("n1", "it is in maintenance: new fan", zone=RACK_ZONE)

    world.give_back(18, RACK_TYPE, zone=RACK_ZONE)

    assert reclaimed_by_domain(world)[:2] == [18, 0]
    assert world.documents("capacity")[f"{RACK_ZONE}/{RACK_TYPE}"]["free"] == 18


def test_racks_that_are_not_whole_cannot_be_reclaimed(world: WorldHarness) -> None:
    given_racks(world, *[1] * 18)

    command = world.reclaim(18, RACK_TYPE, zone=RACK_ZONE)

    assert world.outcomes(command) == [
        f"Invalid count: at most 0 machines of {RACK_TYPE} in {RACK_ZONE} can be reclaimed, "
        "not 18: 0 free in whole racks"
    ]


def test_whole_racks_are_reclaimed_one_after_the_other(world: WorldHarness) -> None:
    given_racks(world, 18, 20, 17)

    commands = [world.reclaim(18, RACK_TYPE, zone=RACK_ZONE) for _ in range(3)]

    outcomes = [world.outcomes(command)[0][:13] for command in commands]
    assert outcomes == ["done", "done", "Invalid count"]
    assert reclaimed_by_domain(world)[:3] == [18, 18, 0]


def test_a_reclaim_of_more_racks_than_one_decision_can_hold_is_completed(
    world: WorldHarness,
) -> None:
    given_racks(world, *[18] * 60)

    with world.sent_together():
        world.reclaim(18 * 10, RACK_TYPE, zone=RACK_ZONE)
        world.reclaim(18 * 50, RACK_TYPE, zone=RACK_ZONE)

    assert reclaimed_by_domain(world)[:60] == [18] * 60


def test_a_reclaim_of_more_than_one_decision_can_hold_is_completed(world: WorldHarness) -> None:
    world.given_data_center(machines=1_200, quota=1_200)

    world.reclaim(1_200)
    all_held = counts(world)
    world.give_back(1_200)

    assert all_held == (0, 0, 1_200)
    assert counts(world) == (1_200, 0, 0)


def test_whole_racks_are_reclaimed_and_returned(world: WorldHarness) -> None:
    world.given_machines(18, RACK_TYPE, zone=RACK_ZONE, labels={NVLINK_DOMAIN: "d1"})
    world.given_machines(17, RACK_TYPE, zone=RACK_ZONE, labels={NVLINK_DOMAIN: "d2"})

    part = world.reclaim(17, RACK_TYPE, zone=RACK_ZONE)
    world.reclaim(18, RACK_TYPE, zone=RACK_ZONE)
    item = world.documents("capacity")[f"{RACK_ZONE}/{RACK_TYPE}"]

    assert world.outcomes(part)[0].startswith("Invalid count: 17 is not a multiple of 18")
    assert (item["free"], item["reclaimed"]) == (17, 18)
    held = [str(each) for each in world.documents("machines").values() if "Reclaimed" in str(each)]
    assert all("'d1'" in each for each in held)
