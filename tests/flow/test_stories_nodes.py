"""What Nodes look like and what becomes of them: metadata, failures, repairs, Pods."""

from support.stage import H100, PREFER_IDLE, ZONE, Stage, WorldStage, metadata

GPU = {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
RED = {"key": "team", "value": "red", "effect": "NoSchedule"}


def spec(stage: Stage, node: str) -> object:
    return stage.node(node)["spec"]


def labels(stage: Stage, node: str) -> dict[str, str]:
    return metadata(stage.node(node))["labels"]


def test_a_node_carries_what_the_control_plane_and_its_pool_give_it(stage: Stage) -> None:
    stage.given_house(machines=0)
    stage.given_machines(1, labels={"node.coreweave.cloud/rack": "r7"})

    stage.apply(
        "train",
        1,
        nodeLabels={"team": "red"},
        nodeAnnotations={"note": "ours"},
        nodeTaints=[RED],
    )

    shown = stage.shown("train")
    assert shown is not None
    assert labels(stage, "n1") == {
        "backend.coreweave.cloud/flavor": "infiniband",
        "compute.coreweave.com/compute-class": "default",
        "compute.coreweave.com/node-pool": "train",
        "compute.coreweave.com/node-pool-uid": metadata(shown)["uid"],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": stage.machine("n1"),
        "node.coreweave.cloud/class": "gpu",
        "node.coreweave.cloud/rack": "r7",
        "node.coreweave.cloud/reserved": "acme",
        "node.coreweave.cloud/state": "production",
        "node.kubernetes.io/instance-type": H100,
        "node.kubernetes.io/type": H100,
        "team": "red",
        "topology.kubernetes.io/region": "US-EAST-04",
        "topology.kubernetes.io/zone": ZONE,
    }
    assert metadata(stage.node("n1"))["annotations"] == {"note": "ours"}
    assert spec(stage, "n1") == {"taints": [GPU, RED]}
    assert stage.node_conditions("n1") == {
        "CWRegistered": "True Registered",
        "CWActive": "False NoWorkloads",
        "CWNodeRemoval": "False NotPending",
    }


def test_a_change_of_metadata_reaches_every_node(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 2)
    world.listen()

    world.apply("train", 2, nodeLabels={"team": "red"}, nodeTaints=[RED])

    assert world.story("train") == [
        "NodePoolValidated Valid",
        "QuotaChecked Under 2",
        "CapacityChecked Sufficient 8",
        "NodeUpdated n1 production",
        "NodeUpdated n2 production",
        "CWNodePoolMetadata",
    ]
    assert [labels(world, node)["team"] for node in ("n1", "n2")] == ["red", "red"]
    assert spec(world, "n2") == {"taints": [GPU, RED]}


def test_metadata_that_a_pool_no_longer_lists_leaves_its_nodes(stage: Stage) -> None:
    stage.given_house()
    stage.apply(
        "train", 1, nodeLabels={"team": "red"}, nodeAnnotations={"a": "b"}, nodeTaints=[RED]
    )

    stage.apply("train", 1)

    assert "team" not in labels(stage, "n1")
    assert metadata(stage.node("n1"))["annotations"] == {}
    assert spec(stage, "n1") == {"taints": [GPU]}


def test_labels_of_the_pool_itself_leave_its_nodes_alone(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.listen()

    stage.apply("train", 1, metadata={"labels": {"team": "red"}})

    assert stage.events("train") == ["CWNodePoolMetadata"]
    assert "NodeUpdated n1 production" not in stage.story("train")
    shown = stage.shown("train")
    assert shown is not None
    assert metadata(shown)["labels"] == {"team": "red"}


def test_a_node_that_joins_later_has_the_newest_metadata(world: WorldStage) -> None:
    world.given_house(boot_s=60)
    world.apply("train", 1, nodeLabels={"team": "red"})
    world.apply("train", 1, nodeLabels={"team": "blue"})

    world.pass_time(minutes=1)

    assert labels(world, "n1")["team"] == "blue"


def test_new_metadata_leaves_a_cordon_in_place(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1, lifecycle=PREFER_IDLE)
    stage.run_pod("n1")
    stage.scale("train", 0)

    stage.apply("train", 0, lifecycle=PREFER_IDLE, nodeTaints=[RED])

    assert spec(stage, "n1") == {"taints": [GPU, CORDON, RED], "unschedulable": True}


def test_a_machine_that_does_not_boot_goes_to_triage_and_is_replaced(stage: Stage) -> None:
    stage.given_house()
    stage.break_machines("n1", fault="boot", cause="no power")
    stage.listen()

    stage.apply("train", 1)

    assert stage.story("train") == [
        "CWNodePoolCreated",
        "NodePoolValidated Valid",
        "QuotaChecked Under 1",
        "CapacityChecked Sufficient 10",
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n1",
        "CWNodeRegistrationFailed n1",
        "CWNodeDeliverFail n1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n2",
    ]
    assert stage.messages("train", "CWNodeRegistrationFailed") == [
        "registration of Node n1 failed: the machine did not boot: no power"
    ]
    assert stage.messages("train", "CWNodeDeliverFail") == [
        "not delivered: registration of Node n1 failed: the machine did not boot: no power"
    ]
    assert stage.counts("train") == (1, 0, 1)
    assert stage.nodes() == ["n2"]


def test_a_machine_that_is_turned_away_at_registration_is_replaced(stage: Stage) -> None:
    stage.given_house()
    stage.break_machines("n1", "n2", fault="registration")
    stage.listen()

    stage.apply("train", 2)

    assert stage.messages("train", "CWNodeRegistrationFailed") == [
        "registration of Node n1 failed: the machine was turned away at registration",
        "registration of Node n2 failed: the machine was turned away at registration",
    ]
    assert stage.nodes("train") == ["n3", "n4"]


def test_a_machine_that_stays_silent_is_replaced_after_thirty_minutes(world: WorldStage) -> None:
    world.given_house()
    world.break_machines("n1", fault="silence")
    world.listen()
    world.apply("train", 1)

    world.pass_time(minutes=31)

    assert world.timed("train") == [
        "0:00 CWNodePoolCreated",
        "0:00 CWNodeRequestQueued 1",
        "0:00 CWNodeAssigned n1",
        "30:00 CWNodeRegistrationFailed n1",
        "30:00 CWNodeDeliverFail n1",
        "30:00 CWNodeAssigned n2",
        "30:00 CWNodeRegistered n2",
    ]
    assert world.messages("train", "CWNodeRegistrationFailed") == [
        "registration of Node n1 failed: it did not join its cluster within 30 minutes"
    ]


def test_a_failed_machine_without_a_replacement_leaves_its_pool_under_target(stage: Stage) -> None:
    stage.given_house(machines=1)
    stage.break_machines("n1", fault="boot")

    stage.apply("train", 1)

    assert stage.counts("train") == (1, 0, 0)
    assert stage.conditions("train")["Capacity"] == "NoneAvailable"
    assert stage.conditions("train")["AtTarget"] == "UnderTarget"


def test_a_machine_that_is_repaired_joins_the_pool_that_waits(stage: Stage) -> None:
    stage.given_house(machines=1)
    stage.break_machines("n1", fault="boot")
    stage.apply("train", 1)
    stage.listen()

    stage.repair("n1")

    assert stage.events("train") == ["CWNodeAssigned n1", "CWNodeRegistered n1"]
    assert stage.conditions("train")["Capacity"] == "Sufficient"


def test_a_machine_that_keeps_failing_never_stops_its_pool(stage: Stage) -> None:
    stage.given_house(machines=3)
    stage.break_machines("n1", "n2", fault="boot", times=100)

    stage.apply("train", 2)
    stage.repair("n1", "n2")

    assert stage.nodes("train") == ["n3"]
    assert stage.counts("train") == (2, 0, 1)


def test_a_pod_makes_its_node_active_and_is_named(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)

    stage.run_pod("n1", "job-1")
    stage.run_pod("n1", "job-0")
    active = stage.node_conditions("n1")["CWActive"]
    stage.stop_pod("n1", "job-1")
    stage.stop_pod("n1", "job-0")

    assert active == "True WorkloadsRunning"
    assert stage.node_conditions("n1")["CWActive"] == "False NoWorkloads"


def test_pods_of_daemon_sets_and_verification_leave_a_node_idle(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.run_pod("n1", "agent", daemonSet=True)
    stage.run_pod("n1", "check", verification=True)

    stage.scale("train", 0)

    assert stage.nodes() == []


def test_a_pod_does_not_start_on_a_cordoned_node_or_outside_a_cluster(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1, lifecycle=PREFER_IDLE)
    stage.run_pod("n1")
    stage.scale("train", 0)

    asked = [
        stage.ask("RunPod", ("fleet", ZONE, stage.machine(node)), {"pod": {"name": "late"}})
        for node in ("n1", "n2", "g000000")
    ]

    assert [stage.outcomes(one) for one in asked] == [
        ["Invalid machine: is cordoned"],
        ["Invalid machine: is not a Node of any cluster"],
        ["Invalid machine: US-EAST-04A/g000000 is not a known machine"],
    ]


def test_a_drain_ends_each_kind_of_pod_in_its_own_time(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", "quick", interruption="interruptable", graceS=600)
    world.run_pod("n1", "graceful", interruption="graceful", graceS=90)
    world.run_pod("n1", "blocking", graceS=5)
    world.listen()

    world.scale("train", 0)
    world.pass_time(minutes=5)
    blocked = world.timed("train")
    world.stop_pod("n1", "blocking")

    assert blocked == [
        "0:00 CWNodePoolRemoveNodes 1",
        "0:00 CWNodeDeletionRequestSuccess n1",
        "0:00 CWDrainNode n1",
    ]
    assert world.timed("train")[3:] == [
        "5:00 CWNodeDeleted n1",
        "5:00 CWNodePoolNodesRemoved 1 0",
        "5:00 CWNodePoolScaledDown 1 0",
    ]


def test_a_graceful_pod_is_awaited_up_to_its_grace_period(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="graceful", graceS=90)
    world.listen()

    world.scale("train", 0)
    world.pass_time(minutes=2)

    assert world.timed("train")[2:4] == ["0:00 CWDrainNode n1", "1:30 CWNodeDeleted n1"]


def test_a_graceful_pod_that_ends_by_itself_is_not_awaited_longer(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="graceful", graceS=90)
    world.listen()

    world.scale("train", 0)
    world.pass_time(seconds=10)
    world.stop_pod("n1")

    assert world.timed("train")[2:4] == ["0:00 CWDrainNode n1", "0:10 CWNodeDeleted n1"]


def test_an_interruptable_pod_holds_nothing_up(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1, lifecycle=PREFER_IDLE)
    stage.run_pod("n1", interruption="interruptable", graceS=600)

    stage.scale("train", 0)

    assert stage.nodes() == []


def test_a_node_that_stays_after_all_may_run_pods_again(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1, lifecycle=PREFER_IDLE)
    stage.run_pod("n1")
    stage.scale("train", 0)

    stage.scale("train", 1)
    stage.run_pod("n1", "next")

    assert stage.node_conditions("n1") == {
        "CWRegistered": "True Registered",
        "CWActive": "True WorkloadsRunning",
        "CWNodeRemoval": "False NotPending",
    }
    assert spec(stage, "n1") == {"taints": [GPU]}


def test_a_pod_cannot_claim_to_be_ending_already(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1)
    world.run_pod("n1", terminating=True, graceS=60)

    world.delete("train")
    world.pass_time(minutes=2)

    assert world.shown("train") is None
