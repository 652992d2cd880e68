"""A machine that is wiped between its stays is free only once its wipe is confirmed."""

from collections.abc import Mapping

import pytest

from nodepool.contract import metrics
from nodepool.contract.documents import field
from nodepool.contract.events import (
    CWNodeAssigned,
    MachineWiped,
    NodePreemptionRequested,
)
from nodepool.contract.messages import Message
from nodepool.explanation.sentence import Explanation, explain
from support.constants import CLUSTER, H100, ORG, ZONE
from support.explaining import buckets_of, facts_of
from support.grown import grown
from support.harness import Harness
from support.services import NAMES
from support.world_harness import WorldHarness

WIPE_S = 600
STAYS = CWNodeAssigned, MachineWiped


def given_wiped(world: Harness, machines: int, repair_s: float = 0) -> None:
    """A cluster with so many machines that are wiped for ten minutes after each stay."""
    world.given_cluster()
    world.given_quota(100)
    world.given_machines(machines, wipeSeconds=WIPE_S, repairSeconds=repair_s)


def counts(world: Harness) -> tuple[object, object, object, object]:
    """How many machines are free, assigned, out of service and being wiped."""
    item = world.documents("capacity")[f"{ZONE}/{H100}"]
    return item["free"], item["assigned"], item["triage"], item.get("zap", 0)


def explained(world: WorldHarness, pool: str) -> Explanation:
    """Why a NodePool is not at its target."""
    return explain(facts_of(buckets_of(world.world), f"{ORG}/{CLUSTER}/{pool}"))


def state(world: Harness, number: int = 0) -> object:
    """The state of a machine, counted from 0, as readers see it."""
    return field(list(world.documents("machines").values())[number], "status", "state")


def test_a_machine_is_wiped_before_another_organisation_gets_it(world: WorldHarness) -> None:
    # given a Node of one organisation, and another organisation that waits for its machine
    given_wiped(world, 1)
    world.given_cluster("main", org="beta")
    world.given_quota(1, org="beta")
    world.apply("train", 1)
    world.pass_time(minutes=1)
    world.apply("beta/main/serve", 1)

    # when the Node leaves
    world.scale("train", 0)
    world.pass_time(minutes=9)
    during = state(world), counts(world), world.node_counts("beta/main/serve").current
    world.pass_time(minutes=2)

    # then its machine is wiped first
    assert during == ("Zap", (0, 0, 0, 1), 0)
    assert world.node_counts("beta/main/serve").current == 1
    assert _all(world, MachineWiped, CWNodeAssigned) == [
        CWNodeAssigned,
        MachineWiped,
        CWNodeAssigned,
    ]


def test_a_machine_that_is_not_wiped_is_free_at_once(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.scale("train", 0)

    assert counts(world) == (1, 0, 0, 0)
    assert "zap" not in world.documents("capacity")[f"{ZONE}/{H100}"]
    assert not _all(world, MachineWiped)


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_is_wiped_whichever_service_is_down_meanwhile(
    world: WorldHarness, name: str
) -> None:
    # given a Node that leaves while a service is down
    given_wiped(world, 1)
    world.apply("train", 1)
    world.pass_time(minutes=1)
    with world.paused(name):
        world.scale("train", 0)
        world.apply("next", 1)
        world.pass_time(minutes=20)

    # when the service starts again without what it knew
    world.restart(name)
    world.pass_time(minutes=20)

    # then the machine was wiped once, between its two stays
    assert _all(world, MachineWiped, CWNodeAssigned) == [
        CWNodeAssigned,
        MachineWiped,
        CWNodeAssigned,
    ]
    assert world.node_counts("next").current == 1


def test_a_repaired_machine_is_wiped_before_it_is_free(world: WorldHarness) -> None:
    # given a machine that did not boot
    given_wiped(world, 1)
    world.break_machines("n1", fault="boot")
    world.apply("train", 1)
    assert (state(world), counts(world)) == ("Triage", (0, 0, 1, 0))

    # when it is repaired
    world.repair_machines("n1")
    during = state(world), counts(world)
    world.pass_time(minutes=11)

    assert during == ("Zap", (0, 0, 0, 1))
    assert world.node_counts("train").current == 1


@pytest.mark.parametrize(
    ("fault", "minutes", "cause"),
    [
        ("wipe", 11, "its wipe has failed: bad sectors"),
        ("wipe-hang", 61, "its wipe has not ended in an hour: bad sectors"),
    ],
)
def test_a_machine_whose_wipe_fails_is_out_of_service_until_another_wipe_succeeds(
    world: WorldHarness, fault: str, minutes: int, cause: str
) -> None:
    # given a machine whose wipe fails
    given_wiped(world, 1)
    world.apply("train", 1)
    world.break_machines("n1", fault=fault, cause="bad sectors")
    world.scale("train", 0)
    assert field(next(iter(world.documents("machines").values())), "status", "fault") == fault
    world.pass_time(minutes=minutes - 2)
    assert state(world) == "Zap"
    world.pass_time(minutes=2)

    # then it is out of service, and says why
    (machine,) = world.documents("machines").values()
    assert field(machine, "status") == {"state": "Zap-fail", "cause": cause}
    assert counts(world) == (0, 0, 1, 0)
    world.apply("next", 1)
    assert f"is out of service: {cause}" in str(explained(world, "next").causes[0].details)

    # when it is repaired
    world.repair_machines("n1")
    again = state(world)
    world.pass_time(minutes=11)

    # then it is wiped again, and becomes a Node
    assert again == "Zap"
    assert world.node_counts("next").current == 1


def test_a_machine_whose_wipe_failed_is_repaired_after_a_while_by_itself(
    world: WorldHarness,
) -> None:
    given_wiped(world, 1, repair_s=3_600)
    world.apply("train", 1)
    world.break_machines("n1", fault="wipe")
    world.scale("train", 0)

    world.pass_time(minutes=60)

    assert (state(world), counts(world)) == ("Free", (1, 0, 0, 0))


def test_a_fault_of_a_wipe_is_refused_where_nothing_is_wiped(harness: Harness) -> None:
    harness.given_data_center(machines=1)

    command = harness.send(
        "BreakMachine", harness.machine_path("n1"), {"fault": "wipe", "times": 1, "cause": ""}
    )

    assert harness.outcomes(command) == [
        "Invalid fault: must be another one: the machine is not wiped"
    ]


def test_no_other_spot_node_gives_way_while_a_machine_is_wiped(world: WorldHarness) -> None:
    # given three spot Nodes, and a NodePool that lacks one Node
    given_wiped(world, 3)
    world.grow("cheap", 3, computeClass="spot")
    world.apply("train", 1)

    # when one spot Node has given way and its machine is being wiped
    world.pass_time(minutes=8)
    during = counts(world)
    world.pass_time(minutes=9)

    # then no other spot Node gives way
    assert during == (0, 2, 0, 1)
    assert len(_all(world, NodePreemptionRequested)) == 1
    assert world.node_counts("train").current == 1


def test_another_spot_node_gives_way_once_a_wipe_has_failed(world: WorldHarness) -> None:
    given_wiped(world, 2)
    world.grow("cheap", 2, computeClass="spot")
    world.break_machines("n2", fault="wipe")
    world.apply("train", 1)

    world.pass_time(minutes=40)

    assert len(_all(world, NodePreemptionRequested)) == 2
    assert world.node_counts("train").current == 1


def test_an_operator_may_reclaim_machines_that_are_being_wiped(world: WorldHarness) -> None:
    given_wiped(world, 2)
    world.apply("train", 2)
    world.scale("train", 1)

    too_many, command = world.reclaim(2), world.reclaim(1)
    world.pass_time(minutes=11)

    assert world.outcomes(too_many) == [
        f"Invalid count: at most 1 machine of {H100} in {ZONE} can be reclaimed, not 2: "
        "0 free and 0 spot Nodes, and 1 being wiped"
    ]
    assert world.outcomes(command) == ["done"]
    assert world.documents("capacity")[f"{ZONE}/{H100}"]["reclaimed"] == 1


def test_a_nodepool_that_waits_for_wipes_is_told_so(world: WorldHarness) -> None:
    given_wiped(world, 2)
    world.apply("train", 2)
    world.scale("train", 0)

    world.apply("next", 1)

    cause = explained(world, "next").causes[0]
    assert "2 more are being wiped, and free afterwards" in cause.details
    assert cause.helps == ("wait: 2 machines are being wiped",)
    assert "NoneAvailable" in world.condition("next", "Capacity")


def test_a_nodepool_for_which_no_wiped_machine_is_left_is_not_told_to_wait(
    world: WorldHarness,
) -> None:
    given_wiped(world, 1)
    world.apply("train", 1)
    world.scale("train", 0)
    world.apply("first", 1)

    world.apply("second", 1)

    assert not any(each.startswith("wait") for each in explained(world, "second").causes[0].helps)


def test_a_nodepool_is_told_how_many_machines_are_missing_besides_those_that_are_being_wiped(
    world: WorldHarness,
) -> None:
    # given a NodePool that waits for five machines, of which one is being wiped
    given_wiped(world, 1)
    world.apply("old", 1)
    world.pass_time(minutes=1)
    world.delete("old")
    world.apply("train", 5)
    world.pass_time(minutes=1)

    # when the advice is followed
    advised = explained(world, "train").causes[0].helps
    world.given_machines(4)
    world.pass_time(minutes=11)

    assert advised == ("add 4 machines of the type to the zone; 1 more is being wiped",)
    assert world.node_counts("train").current == 5


def test_a_wipe_that_serves_an_operator_first_counts_among_the_machines_that_are_missing(
    world: WorldHarness,
) -> None:
    # given an operator who reclaims the two machines that are being wiped
    given_wiped(world, 3)
    world.apply("old", 3)
    world.pass_time(minutes=1)
    world.scale("old", 1)
    world.pass_time(minutes=1)
    world.reclaim(2)
    world.apply("train", 2)

    # when the advice is followed
    advised = explained(world, "train").causes[0].helps
    world.given_machines(2)
    world.pass_time(minutes=11)

    assert advised == (
        "return 2 of 2 reclaimed machines",
        "add 2 machines of the type to the zone, up to 2 of them for what is served before it; "
        "2 more are being wiped",
    )
    assert world.node_counts("train").current == 2


def test_machines_are_to_be_repaired_that_end_a_shortage_together_with_a_wipe(
    world: WorldHarness,
) -> None:
    # given two machines out of service, and a third one that is being wiped
    world.given_cluster()
    world.given_quota(9)
    world.given_machines(2, wipeSeconds=3_000)
    world.given_machines(1, wipeSeconds=WIPE_S)
    world.break_machines("n1", "n2", fault="boot")
    world.apply("broken", 2)
    world.pass_time(minutes=1)
    world.delete("broken")
    world.pass_time(minutes=1)
    world.apply("old", 1)
    world.pass_time(minutes=1)
    world.delete("old")

    # when a NodePool wants all three
    world.apply("train", 3)

    assert explained(world, "train").causes[0].helps == (
        "repair 2 of 2 machines out of service; 1 more is being wiped",
        "add 2 machines of the type to the zone; 1 more is being wiped",
    )


def test_no_service_is_blamed_for_asking_no_spot_node_while_a_wipe_brings_a_machine(
    world: WorldHarness,
) -> None:
    # given spot Nodes that stay, and a machine that is being wiped
    given_wiped(world, 3)
    world.apply("cheap", 2, computeClass="spot")
    world.apply("old", 1)
    world.pass_time(minutes=15)
    world.delete("old")
    world.pass_time(seconds=30)

    # when another NodePool waits for it
    world.apply("train", 1)
    world.pass_time(minutes=1)
    during = explain(
        facts_of(buckets_of(world.world), f"{ORG}/{CLUSTER}/train", world.world.log.clock)
    )
    world.pass_time(minutes=10)

    # then only the wipe is waited for, and no spot Node had to give way
    assert [cause.title for cause in during.causes] == ["Capacity is NoneAvailable"]
    assert during.causes[0].helps[0] == "wait: 1 machine is being wiped"
    assert world.node_counts("train").current == 1
    assert not _all(world, NodePreemptionRequested)


def test_machines_that_are_being_wiped_are_a_state_in_metrics(world: WorldHarness) -> None:
    given_wiped(world, 2)
    world.apply("train", 2)
    world.break_machines("n2", fault="wipe")
    world.scale("train", 0)
    during = _machines(world)

    world.pass_time(minutes=11)

    assert during == {("free", ""): 0, ("assigned", ""): 0, ("zap", ""): 2}
    assert _machines(world) == {
        ("free", ""): 1,
        ("assigned", ""): 0,
        ("zap-fail", "WipeFailed"): 1,
    }


def _all(world: WorldHarness, *kinds: type[Message]) -> list[type[Message]]:
    """The class of each message in the log that is of one of these classes."""
    return [type(each.data) for each in world.envelopes() if isinstance(each.data, kinds)]


def _machines(world: WorldHarness) -> Mapping[tuple[str, ...], object]:
    return {
        labels[2:]: value
        for service in world.services
        for each, labels, value in grown(service.samples(world.world.state(service.name)))
        if each == metrics.MACHINES
    }
