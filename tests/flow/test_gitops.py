"""What tools see of a NodePool that wait for the objects that they have applied."""

from nodepool.contract.documents import field
from support.constants import CLUSTER, H100, ORG, ZONE
from support.failing import given_broken
from support.harness import Harness
from support.kstatus import status_of
from support.paths import org_path
from support.world_harness import WorldHarness


def shown(harness: Harness, pool: str = "train") -> str:
    """What such a tool sees, and the condition that says so."""
    document = harness.node_pool(pool)
    assert document is not None
    found = [
        f"{each['type']}={each['reason']}"
        for each in document["status"]["conditions"]
        if each["type"] in ("Reconciling", "Stalled")
    ]
    return " ".join((status_of(document), *found))


def test_a_pool_at_its_target_is_current_and_has_no_further_condition(harness: Harness) -> None:
    harness.given_data_center()

    harness.apply("train", 2)

    assert shown(harness) == "Current"
    document = harness.node_pool("train")
    assert document is not None
    assert document["status"]["observedGeneration"] == 1
    assert "missingNodes" not in document["status"]


def test_a_pool_is_in_progress_until_its_nodes_have_joined(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)

    world.apply("train", 2)
    before = shown(world)
    world.pass_time(minutes=2)

    assert [before, shown(world)] == ["InProgress Reconciling=UnderTarget", "Current"]


def test_a_pool_that_waits_for_machines_is_in_progress(harness: Harness) -> None:
    harness.given_data_center(machines=1)

    harness.apply("train", 2)

    assert shown(harness) == "InProgress Reconciling=UnderTarget"


def test_a_pool_is_in_progress_until_the_last_check_has_evaluated_it(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 0)

    with world.paused("quota"):
        world.apply("train", 0, nodeLabels={"team": "a"})
        before = shown(world)

    assert [before, shown(world)] == ["InProgress Reconciling=Checking", "Current"]


def test_a_pool_that_needs_a_person_has_failed_until_it_is_mended(harness: Harness) -> None:
    harness.given_cluster()
    harness.given_machines(9)

    seen = []
    harness.apply("train", 4)
    seen.append(shown(harness))
    harness.given_quota(3)
    seen.append(shown(harness))
    harness.apply("train", 4, region="US-WEST-01A")
    seen.append(shown(harness))
    harness.apply("train", 3)
    seen.append(shown(harness))

    assert seen == [
        "Failed Stalled=NotSet",
        "Failed Stalled=Over",
        "Failed Stalled=Invalid",
        "Current",
    ]


def test_a_pool_at_its_target_is_current_whatever_check_would_stop_its_growth() -> None:
    # given a NodePool with all its Nodes, whose quota is deleted, and then cannot be checked
    broken: set[tuple[str, str]] = set()
    world = given_broken("quota", broken)
    world.given_data_center()
    world.apply("train", 2)

    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})
    unset, not_set = shown(world), world.conditions("train")["Quota"]
    broken.add(("quota", f"{ORG}/{CLUSTER}/train"))
    world.apply("train", 2, nodeLabels={"team": "a"})
    failed = shown(world), world.conditions("train")["Quota"]
    world.scale("train", 3)

    # then only a higher target is stalled, and nothing is in progress
    assert (unset, not_set) == ("Current", "NotSet")
    assert failed == ("Current", "InternalError")
    assert shown(world) == "Failed Stalled=InternalError"


def test_a_pool_that_loses_nodes_is_in_progress_whatever_check_would_stop_its_growth() -> None:
    # given a NodePool with too many Nodes, of which each is at work
    broken: set[tuple[str, str]] = set()
    world = given_broken("quota", broken)
    world.given_data_center()
    world.apply("train", 2)
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.scale("train", 1)

    # when its quota is deleted, and then cannot be checked
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})
    unset = shown(world), world.conditions("train")["Quota"]
    broken.add(("quota", f"{ORG}/{CLUSTER}/train"))
    world.apply("train", 1, nodeLabels={"team": "a"})
    failed = shown(world), world.conditions("train")["Quota"]
    world.stop_pod("n1")

    # then it is in progress until a Node is idle
    assert unset == ("InProgress Reconciling=OverTarget", "NotSet")
    assert failed == ("InProgress Reconciling=OverTarget", "InternalError")
    assert shown(world) == "Current"


def test_a_pool_without_a_limit_is_in_progress_up_to_its_grant(world: WorldHarness) -> None:
    # given a NodePool whose Nodes boot when its quota is deleted
    world.given_data_center(machines=4, quota=3, boot_s=60)
    world.apply("train", 3)
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})

    # when they join, one is lost, and more are wanted
    seen = [shown(world)]
    world.pass_time(minutes=2)
    seen.append(shown(world))
    world.break_machines("n1", fault="gpu-lost")
    world.command_node("DrainNode", "train", "n1")
    seen.append(shown(world))
    world.pass_time(minutes=2)
    seen.append(shown(world))
    world.scale("train", 4)
    seen.append(shown(world))

    # then only what exceeds its grant needs a person
    assert world.conditions("train")["Quota"] == "NotSet"
    assert seen == [
        "InProgress Reconciling=UnderTarget",
        "Current",
        "InProgress Reconciling=UnderTarget",
        "Current",
        "Failed Stalled=NotSet",
    ]


def test_a_pool_over_its_limit_is_in_progress_up_to_its_grant(world: WorldHarness) -> None:
    # given a NodePool that lost a Node after its quota was deleted, and can get no other machine
    world.given_data_center(machines=3, quota=3)
    world.apply("train", 3)
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})
    world.break_machines("n1", fault="gpu-lost")
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=2)

    # when its limit is 0, a machine is added, and more Nodes are wanted
    world.given_quota(0)
    seen = [(shown(world), world.conditions("train")["Quota"])]
    world.given_machines(1)
    seen.append((shown(world), world.conditions("train")["Quota"]))
    world.scale("train", 4)
    seen.append((shown(world), world.conditions("train")["Quota"]))

    # then only what exceeds its grant needs a person
    assert seen == [
        ("InProgress Reconciling=UnderTarget", "Under"),
        ("Current", "Under"),
        ("Failed Stalled=Over", "Over"),
    ]


def test_a_pool_that_is_deleted_is_terminating(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 2)

    with world.paused("lifecycle"):
        world.delete("train")
        seen = shown(world)

    assert seen == "Terminating Reconciling=PendingDelete"


def test_the_observed_generation_never_falls(world: WorldHarness) -> None:
    # given a NodePool whose second version is invalid
    world.given_data_center()
    world.apply("train", 1)
    world.apply("train", 1, region="US-WEST-04A")
    invalid = observed(world)

    # when the third is valid, and cannot be checked yet
    with world.paused("quota"):
        world.apply("train", 1)
        waiting = observed(world)

    assert (invalid, waiting, observed(world)) == (2, 2, 3)


def test_the_observed_generation_is_one_that_capacity_has_evaluated_over_quota_too(
    world: WorldHarness,
) -> None:
    # given a NodePool whose second version wants more than its quota
    world.given_data_center(quota=2)
    world.apply("train", 2)

    with world.paused("capacity"):
        world.scale("train", 4)
        over = observed(world), world.conditions("train")["Quota"]
    checked = observed(world)

    # when the limit is deleted, and the third version changes no target
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})
    with world.paused("capacity"):
        world.apply("train", 4, nodeLabels={"team": "a"})
        unset = observed(world), world.conditions("train")["Quota"]

    assert (over, checked) == ((1, "Over"), 2)
    assert (unset, observed(world)) == ((2, "NotSet"), 3)


def observed(world: WorldHarness) -> object:
    """The newest generation that every check has evaluated, as the status shows."""
    return field(world.node_pool("train"), "status", "observedGeneration")
