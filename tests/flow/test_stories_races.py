"""Two things at once: what one service says while another has not yet heard of it."""

from support.stage import WorldStage


def test_an_old_cordon_is_no_proof_of_a_new_one(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1)

    with world.asleep("fleet"):
        world.scale("train", 0)
        world.scale("train", 1)
        world.ask("RunPod", world.machine_path("n1"), {"pod": {"name": "job"}})
        world.scale("train", 0)
    kept = world.nodes("train"), world.node_conditions("n1")["CWActive"]
    world.stop_pod("n1")

    assert kept == (["n1"], "True WorkloadsRunning")
    assert world.nodes("train") == []


def test_a_target_that_wavers_while_the_lifecycle_sleeps_removes_one_node_once(
    world: WorldStage,
) -> None:
    world.given_house()
    world.apply("train", 3)
    world.listen()

    with world.asleep("lifecycle"):
        for target in (2, 3, 2, 3, 2):
            world.scale("train", target)

    asked = ["CWNodePoolRemoveNodes 1", "CWNodeDeletionRequestSuccess n3"]
    assert world.events("train") == [
        *asked * 3,
        "CWDrainNode n3",
        "CWNodeDeleted n3",
        "CWNodePoolNodesRemoved 1 2",
        "CWNodePoolScaledDown 3 2",
    ]
    assert world.counts("train") == (2, 0, 2)


def test_a_shrinking_grant_is_given_back_even_if_another_wish_came_in_between(
    world: WorldStage,
) -> None:
    world.given_house(machines=0, quota=3)
    world.apply("train", 3)
    world.apply("serve", 2)

    with world.asleep("allocator"):
        world.scale("train", 0)
        world.scale("train", 6)

    assert world.conditions("train")["Quota"] == "Over"
    assert world.conditions("serve")["Quota"] == "Under"


def test_a_smaller_grant_binds_only_when_the_allocator_has_heard_of_it(world: WorldStage) -> None:
    world.given_house(quota=3)
    world.apply("serve", 0)

    with world.asleep("allocator"):
        world.apply("train", 3)
        world.scale("train", 1)
        world.scale("serve", 2)
        early = world.conditions("serve")["Quota"]

    assert early == "Over"
    assert world.conditions("serve")["Quota"] == "Under"
    assert world.counts("train") == (1, 0, 1)
    assert world.counts("serve") == (2, 0, 2)


def test_a_node_that_boots_while_it_is_asked_to_leave_leaves(world: WorldStage) -> None:
    world.given_house(boot_s=60)
    world.apply("train", 1)

    with world.asleep("lifecycle"):
        world.pass_time(minutes=1)
        world.scale("train", 0)

    assert world.nodes() == []
    assert world.counts("train") == (0, 0, 0)


def test_a_node_that_is_deleted_while_it_boots_does_not_come_back(world: WorldStage) -> None:
    world.given_house(boot_s=60)
    world.apply("train", 1)

    with world.asleep("fleet"):
        world.scale("train", 0)
        world.pass_time(minutes=2)
    world.pass_time(minutes=2)

    assert world.nodes() == []
    assert world.counts("train") == (0, 0, 0)


def test_a_pod_that_comes_before_the_cordon_of_a_preemption_is_not_killed_at_once(
    world: WorldStage,
) -> None:
    world.given_house(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.listen()

    with world.asleep("fleet"):
        world.ask("RunPod", world.machine_path("n1"), {"pod": {"name": "job", "graceS": 90}})
        world.preempt("cheap", "n1")
        world.pass_time(minutes=2)
    world.pass_time(minutes=2)

    assert world.timed("cheap")[:4] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:30 CWNodeDeleted n1",
    ]


def test_a_pool_deleted_before_its_nodes_were_assigned_takes_none(world: WorldStage) -> None:
    world.given_house()

    with world.asleep("allocator"):
        world.apply("train", 2)
        world.delete("train")

    assert world.shown("train") is None
    assert world.nodes() == []


def test_a_pool_deleted_and_created_anew_while_everybody_slept_is_a_new_one(
    world: WorldStage,
) -> None:
    world.given_house(machines=2)
    world.apply("train", 2)

    with world.asleep("capacity", "aggregator", "fleet", "preemption"):
        world.delete("train")
        world.run_until_idle()
    world.apply("train", 1)

    assert world.counts("train") == (1, 0, 1)
    assert world.conditions("train")["Capacity"] == "Sufficient"


def test_a_change_read_before_another_is_refused_though_the_status_changed_since(
    world: WorldStage,
) -> None:
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(2, boot_s=60)
    world.apply("train", 1)

    with world.asleep("validator"):
        world.scale("train", 2)
        world.pass_time(minutes=1)
        read = world.shown("train")
        assert read is not None
        spec = {**read["spec"], "nodeLabels": {"team": "red"}}  # type: ignore[dict-item]
        asked = world.ask("ApplyNodePool", ("acme", "prod", "train"), {**read, "spec": spec})

    assert world.outcomes(asked)[0].startswith("Conflict metadata.resourceVersion: ")
    assert world.counts("train").target == 2
