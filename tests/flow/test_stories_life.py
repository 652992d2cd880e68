"""A NodePool's life: created, scaled up and down, deleted."""

from support.stage import PREFER_IDLE, Stage, WorldStage


def test_a_new_pool_gets_its_nodes(stage: Stage) -> None:
    stage.given_house(machines=10)
    stage.listen()

    stage.apply("train", 3)

    assert stage.story("train") == [
        "CWNodePoolCreated",
        "NodePoolValidated Valid",
        "QuotaChecked Under 3",
        "CapacityChecked Sufficient 10",
        "CWNodeRequestQueued 3",
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeAssigned n3",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
        "CWNodeRegistered n3",
    ]
    assert stage.counts("train") == (3, 0, 3)
    assert list(stage.conditions("train").items()) == [
        ("Validated", "Valid"),
        ("Capacity", "Sufficient"),
        ("Quota", "Under"),
        ("AtTarget", "TargetMet"),
    ]


def test_a_healthy_pool_says_the_sentences_of_the_reference(stage: Stage) -> None:
    stage.given_house()

    stage.apply("train", 1)

    assert [stage.condition("train", kind) for kind in stage.conditions("train")] == [
        "True Valid: NodePool configuration is valid.",
        "True Sufficient: Sufficient capacity available for the requested instance type.",
        "True Under: NodePool is within instance type quota.",
        "True TargetMet: NodePool has reached its target node count.",
    ]


def test_a_pool_whose_machines_boot_slowly_shows_them_in_progress(world: WorldStage) -> None:
    world.given_house(boot_s=600)
    world.apply("train", 2)
    early = world.counts("train"), world.conditions("train")["AtTarget"]

    world.pass_time(minutes=10)

    assert early == ((2, 2, 0), "UnderTarget")
    assert world.counts("train") == (2, 0, 2)
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_pool_created_with_no_nodes_is_at_its_target(stage: Stage) -> None:
    stage.given_house()
    stage.listen()

    stage.apply("train", 0)

    assert stage.events("train") == ["CWNodePoolCreated"]
    assert stage.counts("train") == (0, 0, 0)
    assert stage.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Under",
        "AtTarget": "TargetMet",
    }


def test_scaling_up_says_so_before_it_asks_for_nodes(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.listen()

    stage.scale("train", 3)

    assert stage.events("train") == [
        "CWNodePoolScaledUp 1 3",
        "CWNodeRequestQueued 2",
        "CWNodeAssigned n2",
        "CWNodeAssigned n3",
        "CWNodeRegistered n2",
        "CWNodeRegistered n3",
    ]
    assert stage.counts("train") == (3, 0, 3)


def test_a_pool_created_with_no_nodes_scales_up_from_none(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 0)
    stage.listen()

    stage.scale("train", 1)

    assert stage.events("train") == [
        "CWNodePoolScaledUp 0 1",
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n1",
        "CWNodeRegistered n1",
    ]


def test_scaling_down_removes_the_newest_idle_nodes(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 4)
    stage.listen()

    stage.scale("train", 2)

    assert stage.events("train") == [
        "CWNodePoolRemoveNodes 2",
        "CWNodeDeletionRequestSuccess n4",
        "CWNodeDeletionRequestSuccess n3",
        "CWDrainNode n4",
        "CWNodeDeleted n4",
        "CWDrainNode n3",
        "CWNodeDeleted n3",
        "CWNodePoolNodesRemoved 2 2",
        "CWNodePoolScaledDown 4 2",
    ]
    assert stage.nodes("train") == ["n1", "n2"]
    assert stage.conditions("train")["AtTarget"] == "TargetMet"


def test_nodes_that_never_joined_leave_first_and_need_no_drain(world: WorldStage) -> None:
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(1)
    world.given_machines(2, boot_s=600)
    world.apply("train", 3)
    world.listen()

    world.scale("train", 1)

    assert world.events("train") == [
        "CWNodePoolRemoveNodes 2",
        "CWNodeDeletionRequestSuccess n3",
        "CWNodeDeletionRequestSuccess n2",
        "CWNodeDeleted n3",
        "CWNodeDeleted n2",
        "CWNodePoolNodesRemoved 2 1",
        "CWNodePoolScaledDown 3 1",
    ]
    assert world.counts("train") == (1, 0, 1)


def test_an_active_node_stays_under_idle_only_until_it_is_idle(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 2)
    stage.run_pod("n1")
    stage.run_pod("n2")
    stage.listen()

    stage.scale("train", 1)
    waiting = stage.events("train"), stage.condition("train", "AtTarget")
    stage.stop_pod("n1")

    assert waiting == (
        ["CWNodePoolRemoveNodes 1"],
        "False OverTarget: NodePool has 2 Nodes and wants 1; IdleOnly removes.",
    )
    assert stage.events("train")[1:] == [
        "CWNodeDeletionRequestSuccess n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 1",
        "CWNodePoolScaledDown 2 1",
    ]
    assert stage.nodes("train") == ["n2"]


def test_prefer_idle_takes_idle_nodes_and_then_active_ones(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 3, lifecycle=PREFER_IDLE)
    stage.run_pod("n2", interruption="interruptable")
    stage.run_pod("n3", interruption="interruptable")
    stage.listen()

    stage.scale("train", 1)

    assert stage.events("train") == [
        "CWNodePoolRemoveNodes 2",
        "CWNodeDeletionRequestSuccess n1",
        "CWNodeDeletionRequestSuccess n3",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWDrainNode n3",
        "CWNodeDeleted n3",
        "CWNodePoolNodesRemoved 2 1",
        "CWNodePoolScaledDown 3 1",
    ]


def test_a_pod_that_blocks_holds_up_an_active_node_that_has_to_go(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1, lifecycle=PREFER_IDLE)
    stage.run_pod("n1")
    stage.listen()

    stage.scale("train", 0)
    draining = stage.events("train"), stage.counts("train")
    stage.stop_pod("n1")

    assert draining == (
        ["CWNodePoolRemoveNodes 1", "CWNodeDeletionRequestSuccess n1", "CWDrainNode n1"],
        (0, 0, 1),
    )
    assert stage.events("train")[3:] == [
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolScaledDown 1 0",
    ]


def test_a_node_that_becomes_active_before_its_cordon_is_kept(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 2)
    world.run_pod("n1")
    world.listen()

    with world.asleep("lifecycle"):
        world.scale("train", 1)
        world.run_pod("n2")

    assert world.story("train") == [
        "NodePoolValidated Valid",
        "QuotaChecked Under 1",
        "CapacityChecked Sufficient 8",
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n2",
        "GrantAcknowledged 1",
        "NodeUpdated n2 cordoned",
        "NodeActivityChanged n2 True",
        "NodeUpdated n2 production",
        "NodeKept n2",
    ]
    assert world.nodes("train") == ["n1", "n2"]
    assert world.conditions("train")["AtTarget"] == "OverTarget"
    assert world.node_conditions("n2")["CWNodeRemoval"] == "False NotPending"


def test_a_node_that_was_kept_leaves_when_it_is_idle_again(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 2)
    world.run_pod("n1")
    with world.asleep("lifecycle"):
        world.scale("train", 1)
        world.run_pod("n2")
    world.listen()

    world.stop_pod("n2")

    assert world.events("train") == [
        "CWNodeDeletionRequestSuccess n2",
        "CWDrainNode n2",
        "CWNodeDeleted n2",
        "CWNodePoolNodesRemoved 1 1",
        "CWNodePoolScaledDown 2 1",
    ]


def test_a_target_that_rises_again_keeps_the_nodes_that_are_still_there(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 2, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.run_pod("n2")
    world.scale("train", 0)
    world.listen()

    world.scale("train", 2)

    assert world.story("train") == [
        "NodePoolValidated Valid",
        "QuotaChecked Under 2",
        "CapacityChecked Sufficient 8",
        "NodeRemovalCancelled n1",
        "NodeRemovalCancelled n2",
        "NodeUpdated n1 production",
        "NodeKept n1",
        "NodeUpdated n2 production",
        "NodeKept n2",
    ]
    assert world.counts("train") == (2, 0, 2)
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_target_that_rises_again_replaces_the_nodes_that_are_gone(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 3, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.scale("train", 0)
    world.listen()

    world.scale("train", 2)

    assert world.events("train") == [
        "CWNodePoolNodesRemoved 2 1",
        "CWNodePoolScaledDown 3 2",
        "CWNodeAssigned n4",
        "CWNodeRegistered n4",
    ]
    assert world.nodes("train") == ["n1", "n4"]


def test_a_pool_that_shrinks_gives_its_machines_to_others(stage: Stage) -> None:
    stage.given_house(machines=2)
    stage.apply("train", 2)
    stage.apply("serve", 1)
    stage.listen()

    stage.scale("train", 1)

    assert stage.events("serve") == ["CWNodeAssigned n2", "CWNodeRegistered n2"]
    assert stage.nodes("train") == ["n1"]
    assert stage.nodes("serve") == ["n2"]


def test_deleting_a_pool_removes_its_nodes_and_then_itself(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 2)
    stage.listen()

    asked = stage.delete("train")

    assert stage.outcomes(asked) == ["deleted 1"]
    assert stage.story("train") == [
        "NodePoolDeleting",
        "CWNodePoolRemoveNodes 2",
        "CWNodeDeletionRequestSuccess n1",
        "CWNodeDeletionRequestSuccess n2",
        "NodeUpdated n1 cordoned",
        "NodeUpdated n2 cordoned",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWDrainNode n2",
        "CWNodeDeleted n2",
        "CWNodePoolNodesRemoved 2 0",
        "CWNodePoolDeleted",
        "QuotaReleased 0",
    ]
    assert stage.shown("train") is None
    assert stage.nodes() == []


def test_a_pool_in_deletion_shows_what_is_still_to_be_removed(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 2)
    world.run_pod("n1", graceS=60)

    world.delete("train")
    pending = world.conditions("train"), world.condition("train", "NodesRemoved")
    with world.asleep("validator"):
        world.pass_time(minutes=1)
        complete = world.conditions("train")["NodesRemoved"]

    assert pending == (
        {
            "Validated": "Valid",
            "Capacity": "Sufficient",
            "Quota": "Under",
            "AtTarget": "PendingDelete",
            "NodesRemoved": "Pending",
        },
        "False Pending: 1 Nodes are still to be removed.",
    )
    assert complete == "Complete"
    assert world.shown("train") is None


def test_deleting_a_pool_does_not_wait_for_a_pod_that_blocks(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1)
    world.run_pod("n1", graceS=600)
    world.listen()

    world.delete("train")
    world.pass_time(minutes=11)

    assert world.timed("train") == [
        "0:00 CWNodePoolRemoveNodes 1",
        "0:00 CWNodeDeletionRequestSuccess n1",
        "0:00 CWDrainNode n1",
        "10:00 CWNodeDeleted n1",
        "10:00 CWNodePoolNodesRemoved 1 0",
        "10:00 CWNodePoolDeleted",
    ]


def test_deleting_a_pool_ends_a_scale_down_that_waits_for_idle_nodes(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.run_pod("n1", interruption="interruptable")
    stage.scale("train", 0)
    stage.listen()

    stage.delete("train")

    assert stage.events("train") == [
        "CWNodeDeletionRequestSuccess n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolDeleted",
    ]


def test_a_pool_without_nodes_is_deleted_at_once(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 0)
    stage.listen()

    stage.delete("train")

    assert stage.events("train") == ["CWNodePoolNodesRemoved 0 0", "CWNodePoolDeleted"]
    assert stage.shown("train") is None


def test_deleting_twice_changes_nothing_more(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1)
    world.run_pod("n1")
    world.listen()

    first = world.delete("train")
    second = world.delete("train")
    world.pass_time(minutes=1)
    third = world.delete("train")

    assert world.events("train") == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolDeleted",
    ]
    assert [world.outcomes(asked) for asked in (first, second, third)] == [
        ["deleted 1"],
        ["deleted 1"],
        ["NotFound metadata.name: NodePool train does not exist"],
    ]


def test_a_name_can_be_used_again_when_its_pool_is_gone(stage: Stage) -> None:
    stage.given_house(machines=2)
    stage.apply("train", 2)
    stage.scale("train", 1)
    stage.delete("train")
    stage.listen()

    asked = stage.apply("train", 1)

    assert stage.outcomes(asked) == ["created 1"]
    assert stage.events("train") == [
        "CWNodePoolCreated",
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n2",
    ]
    assert stage.counts("train") == (1, 0, 1)
    assert "NodesRemoved" not in stage.conditions("train")


def test_a_pool_in_deletion_cannot_be_changed(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1)
    world.run_pod("n1")
    world.delete("train")

    applied = world.apply("train", 2)
    scaled = world.scale("train", 2)

    told = "Conflict metadata.name: NodePool train is being deleted; wait until it is gone"
    assert world.outcomes(applied) == [told]
    assert world.outcomes(scaled) == [told]


def test_applying_the_same_manifest_again_changes_nothing(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.listen()

    asked = stage.apply("train", 1)

    assert stage.outcomes(asked) == ["unchanged 1"]
    assert stage.story("train") == []


def test_only_a_change_of_the_spec_makes_a_new_generation(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)

    labelled = stage.apply("train", 1, metadata={"labels": {"team": "red"}})
    scaled = stage.apply("train", 2, metadata={"labels": {"team": "red"}})

    assert stage.outcomes(labelled) == ["configured 1"]
    assert stage.outcomes(scaled) == ["configured 2"]
