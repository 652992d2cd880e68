"""Races: services act on different parts of the log, because some are paused."""

from support.world_harness import WorldHarness

EVICTING = {"disableUnhealthyNodeEviction": False}


def test_a_report_of_an_old_cordon_does_not_confirm_a_new_one(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)

    with world.paused("fleet"):
        world.scale("train", 0)
        world.scale("train", 1)
        world.send("RunPod", world.machine_path("n1"), {"pod": {"name": "job"}})
        world.scale("train", 0)
    kept = world.nodes("train"), world.node_conditions("n1")["CWActive"]
    world.stop_pod("n1")

    assert kept == (["n1"], "True WorkloadsRunning")
    assert world.nodes("train") == []


def test_a_target_changed_back_and_forth_while_lifecycle_is_paused_removes_one_node_once(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.grow("train", 3)
    world.start_recording()

    with world.paused("lifecycle"):
        for target in (2, 3, 2, 3, 2):
            world.scale("train", target)

    # then one removal is under way until it is certain which Node stays
    assert world.events("train") == [
        "CWNodePoolRemoveNodes 1",
        *["CWNodeDeletionRequestSuccess n3"] * 3,
        "CWDrainNode n3",
        "CWNodeDeleted n3",
        "CWNodePoolNodesRemoved 1 2",
        "CWNodePoolScaledDown 3 2",
    ]
    assert world.node_counts("train") == (2, 0, 2)


def test_a_grant_is_given_back_even_if_the_target_rises_again_in_between(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=0, quota=3)
    world.apply("train", 3)
    world.apply("serve", 2)

    with world.paused("allocator"):
        world.scale("train", 0)
        world.scale("train", 6)

    assert world.conditions("train")["Quota"] == "Over"
    assert world.conditions("serve")["Quota"] == "Under"


def test_a_smaller_grant_frees_quota_only_when_it_is_acknowledged(
    world: WorldHarness,
) -> None:
    world.given_data_center(quota=3)
    world.apply("serve", 0)

    with world.paused("allocator"):
        world.apply("train", 3)
        world.scale("train", 1)
        world.scale("serve", 2)
        early = world.conditions("serve")["Quota"]

    assert early == "Over"
    assert world.conditions("serve")["Quota"] == "Under"
    assert world.node_counts("train") == (1, 0, 1)
    assert world.node_counts("serve") == (2, 0, 2)


def test_a_grant_that_shrinks_while_nodes_are_assigned_covers_these_nodes(
    world: WorldHarness,
) -> None:
    # given a limit that is lowered before the allocator has used the grants of two pools
    world.given_data_center(machines=12, quota=20)
    with world.paused("allocator"):
        world.apply("train", 7, lifecycle=EVICTING)
        world.apply("serve", 7, lifecycle=EVICTING)
        world.given_quota(10)
    use = world.documents("quotas").values()
    grants = {pool: world.granted_nodes(pool) for pool in ("train", "serve")}

    # when each pool loses a Node, and machines are added
    world.start_recording()
    world.break_machines("n1", fault="gpu-lost")
    world.break_machines("n12", fault="gpu-lost")
    world.given_machines(4)

    # then both Nodes are replaced, and no Node more is assigned
    assert ([each["used"] for each in use], grants) == ([12], {"train": 7, "serve": 5})
    assert world.node_counts("train") == (7, 0, 7)
    assert world.node_counts("serve") == (7, 0, 5)
    assert world.conditions("train")["Quota"] == "Under"
    assert world.condition("serve", "Quota") == (
        "False Over: targetNodes 7 exceeds quota 10 for gd-8xh100ib-i128 (7 used by 1 other pool)"
    )


def test_an_invalid_pool_gives_back_its_grant_when_the_allocator_uses_it_no_more(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=2, quota=5)
    world.apply("train", 5)
    world.apply("serve", 3)

    with world.paused("allocator"):
        world.apply("train", 5, region="US-WEST-04A")
        early = world.conditions("serve")["Quota"]

    assert early == "Over"
    assert world.conditions("serve")["Quota"] == "Under"
    assert world.granted_nodes("train") == 2


def test_a_pool_that_is_invalid_for_a_moment_gets_back_what_it_has_not_given_back_yet(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=2, quota=5)
    world.apply("train", 5)
    world.apply("serve", 3)

    with world.paused("allocator"):
        world.apply("train", 5, region="US-WEST-04A")
        world.apply("train", 5)
    world.given_machines(8)

    assert world.node_counts("train") == (5, 0, 5)
    assert world.node_counts("serve") == (3, 0, 0)


def test_a_node_that_boots_while_its_removal_is_requested_is_removed(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 1)

    with world.paused("lifecycle"):
        world.pass_time(minutes=1)
        world.scale("train", 0)

    assert world.nodes() == []
    assert world.node_counts("train") == (0, 0, 0)


def test_a_node_that_is_deleted_while_it_boots_does_not_come_back(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 1)

    with world.paused("fleet"):
        world.scale("train", 0)
        world.pass_time(minutes=2)
    world.pass_time(minutes=2)

    assert world.nodes() == []
    assert world.node_counts("train") == (0, 0, 0)


def test_a_pod_started_before_the_cordon_of_a_preemption_keeps_its_grace_period(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.start_recording()

    with world.paused("fleet"):
        world.send("RunPod", world.machine_path("n1"), {"pod": {"name": "job", "graceS": 90}})
        world.preempt("cheap", "n1")
        world.pass_time(minutes=2)
    world.pass_time(minutes=2)

    assert world.timed_events("cheap")[:4] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:30 CWNodeDeleted n1",
    ]


def test_a_pool_deleted_before_its_nodes_were_assigned_takes_none(world: WorldHarness) -> None:
    world.given_data_center()

    with world.paused("allocator"):
        world.apply("train", 2)
        world.delete("train")

    assert world.node_pool("train") is None
    assert world.nodes() == []


def test_a_pool_deleted_and_created_again_while_services_are_paused_is_a_new_one(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=2)
    world.apply("train", 2)

    with world.paused("capacity", "aggregator", "fleet", "preemption"):
        world.delete("train")
        world.run_until_idle()
    world.apply("train", 1)

    assert world.node_counts("train") == (1, 0, 1)
    assert world.conditions("train")["Capacity"] == "Sufficient"


def test_a_change_based_on_a_read_before_a_pending_scale_is_refused(
    world: WorldHarness,
) -> None:
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(2, boot_s=60)
    world.apply("train", 1)

    with world.paused("validator"):
        world.scale("train", 2)
        world.pass_time(minutes=1)
        read = world.node_pool("train")
        assert read is not None
        spec = {**read["spec"], "nodeLabels": {"team": "red"}}
        command = world.send("ApplyNodePool", ("acme", "prod", "train"), {**read, "spec": spec})

    assert world.outcomes(command)[0].startswith("Conflict metadata.resourceVersion: ")
    assert world.node_counts("train").target == 2
