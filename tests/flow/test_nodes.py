"""Nodes: their labels, annotations and taints, and the machines that fail to become one."""

from nodepool.contract.documents import field
from support.constants import CLUSTER, H100, ORG, OWN_TAINT, PREFER_IDLE, ZONE
from support.harness import Harness
from support.world_harness import WorldHarness

GPU = {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"}


CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


RED = {"key": "team", "value": "red", "effect": "NoSchedule"}


def spec(harness: Harness, node: str) -> object:
    """The spec of a Node."""
    return harness.node(node)["spec"]


def labels(harness: Harness, node: str) -> dict[str, str]:
    """The labels of a Node."""
    return harness.node(node)["metadata"]["labels"]


def pool_status(harness: Harness) -> dict[str, object]:
    """The status of the NodePool `train`."""
    status = field(harness.documents("nodepools")[f"{ORG}/{CLUSTER}/train"], "status")
    assert isinstance(status, dict)
    return status


def test_the_conditions_of_a_node_keep_their_times_while_their_status_stays(
    world: WorldHarness,
) -> None:
    # given a Node that boots
    world.given_data_center(machines=1, boot_s=300)
    world.apply("train", 1)
    booting = world.node_condition_times("n1")

    # when it joins its cluster
    world.pass_time(minutes=5)
    joined = world.node_condition_times("n1")

    # then it is registered from now on, and as idle as before
    assert world.node_conditions("n1")["CWRegistered"] == "True Registered"
    assert joined == {**booting, "CWRegistered": "2026-01-01T00:05:00Z"}


def test_a_node_has_the_metadata_of_the_control_plane_and_its_pool(harness: Harness) -> None:
    harness.given_data_center(machines=0)
    harness.given_machines(1, labels={"node.coreweave.cloud/rack": "r7"})

    harness.apply(
        "train",
        1,
        nodeLabels={"team": "red"},
        nodeAnnotations={"note": "ours"},
        nodeTaints=[RED],
    )

    node_pool = harness.node_pool("train")
    assert node_pool is not None
    assert labels(harness, "n1") == {
        "backend.coreweave.cloud/flavor": "infiniband",
        "compute.coreweave.com/compute-class": "default",
        "compute.coreweave.com/node-pool": "train",
        "compute.coreweave.com/node-pool-uid": node_pool["metadata"]["uid"],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": harness.machine_name("n1"),
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
    assert harness.node("n1")["metadata"]["annotations"] == {"note": "ours"}
    assert spec(harness, "n1") == {"taints": [GPU, OWN_TAINT, RED]}
    assert harness.node_conditions("n1") == {
        "CWRegistered": "True Registered",
        "CWActive": "False NoWorkloads",
        "CWNodeRemoval": "False NotPending",
    }


def test_a_change_of_metadata_reaches_every_node(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 2)
    world.start_recording()

    world.apply("train", 2, nodeLabels={"team": "red"}, nodeTaints=[RED])

    assert world.messages("train") == [
        "NodePoolValidated Valid",
        "QuotaChecked Under 2",
        "CapacityChecked Sufficient 8",
        "NodeUpdated n1 production",
        "NodeUpdated n2 production",
        "CWNodePoolMetadata",
    ]
    assert [labels(world, node)["team"] for node in ("n1", "n2")] == ["red", "red"]
    assert spec(world, "n2") == {"taints": [GPU, OWN_TAINT, RED]}


def test_metadata_that_a_pool_no_longer_lists_leaves_its_nodes(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply(
        "train", 1, nodeLabels={"team": "red"}, nodeAnnotations={"a": "b"}, nodeTaints=[RED]
    )

    harness.apply("train", 1)

    assert "team" not in labels(harness, "n1")
    assert harness.node("n1")["metadata"]["annotations"] == {}
    assert spec(harness, "n1") == {"taints": [GPU, OWN_TAINT]}


def test_labels_of_the_node_pool_itself_do_not_reach_its_nodes(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.start_recording()

    harness.apply("train", 1, metadata={"labels": {"team": "red"}})

    assert harness.events("train") == ["CWNodePoolMetadata"]
    assert "NodeUpdated n1 production" not in harness.messages("train")
    node_pool = harness.node_pool("train")
    assert node_pool is not None
    assert node_pool["metadata"]["labels"] == {"team": "red"}


def test_a_node_that_joins_later_has_the_newest_metadata(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 1, nodeLabels={"team": "red"})
    world.apply("train", 1, nodeLabels={"team": "blue"})

    world.pass_time(minutes=1)

    assert labels(world, "n1")["team"] == "blue"


def test_new_metadata_leaves_a_cordon_in_place(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1, lifecycle=PREFER_IDLE)
    harness.run_pod("n1")
    harness.scale("train", 0)

    harness.apply("train", 0, lifecycle=PREFER_IDLE, nodeTaints=[RED])

    assert spec(harness, "n1") == {"taints": [GPU, OWN_TAINT, CORDON, RED], "unschedulable": True}


def test_a_machine_that_does_not_boot_goes_to_triage_and_is_replaced(harness: Harness) -> None:
    harness.given_data_center()
    harness.break_machines("n1", fault="boot", cause="no power")
    harness.start_recording()

    harness.apply("train", 1)

    assert harness.messages("train") == [
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
    assert harness.event_messages("train", "CWNodeRegistrationFailed") == [
        "registration of Node n1 failed: the machine did not boot: no power"
    ]
    assert harness.event_messages("train", "CWNodeDeliverFail") == [
        "not delivered: registration of Node n1 failed: the machine did not boot: no power"
    ]
    assert harness.node_counts("train") == (1, 0, 1)
    assert harness.nodes() == ["n2"]


def test_a_machine_that_fails_to_register_is_replaced(harness: Harness) -> None:
    harness.given_data_center()
    harness.break_machines("n1", "n2", fault="registration")
    harness.start_recording()

    harness.apply("train", 2)

    assert harness.event_messages("train", "CWNodeRegistrationFailed") == [
        "registration of Node n1 failed: the machine was turned away at registration",
        "registration of Node n2 failed: the machine was turned away at registration",
    ]
    assert harness.nodes("train") == ["n3", "n4"]


def test_a_machine_that_stays_silent_is_replaced_after_thirty_minutes(world: WorldHarness) -> None:
    world.given_data_center()
    world.break_machines("n1", fault="silence")
    world.start_recording()
    world.apply("train", 1)

    world.pass_time(minutes=31)

    assert world.timed_events("train") == [
        "0:00 CWNodePoolCreated",
        "0:00 CWNodeRequestQueued 1",
        "0:00 CWNodeAssigned n1",
        "30:00 CWNodeRegistrationFailed n1",
        "30:00 CWNodeDeliverFail n1",
        "30:00 CWNodeAssigned n2",
        "30:00 CWNodeRegistered n2",
    ]
    assert world.event_messages("train", "CWNodeRegistrationFailed") == [
        "registration of Node n1 failed: it did not join its cluster within 30 minutes"
    ]


def test_a_failed_machine_without_replacement_leaves_its_pool_under_target(
    harness: Harness,
) -> None:
    harness.given_data_center(machines=1)
    harness.break_machines("n1", fault="boot")

    harness.apply("train", 1)

    assert harness.node_counts("train") == (1, 0, 0)
    assert harness.conditions("train")["Capacity"] == "NoneAvailable"
    assert harness.conditions("train")["AtTarget"] == "UnderTarget"


def test_a_machine_that_is_repaired_joins_the_pool_that_waits(harness: Harness) -> None:
    harness.given_data_center(machines=1)
    harness.break_machines("n1", fault="boot")
    harness.apply("train", 1)
    harness.start_recording()

    harness.repair_machines("n1")

    assert harness.events("train") == ["CWNodeAssigned n1", "CWNodeRegistered n1"]
    assert harness.conditions("train")["Capacity"] == "Sufficient"


def test_a_machine_that_keeps_failing_does_not_block_its_pool(harness: Harness) -> None:
    harness.given_data_center(machines=3)
    harness.break_machines("n1", "n2", fault="boot", times=100)

    harness.apply("train", 2)
    harness.repair_machines("n1", "n2")

    assert harness.nodes("train") == ["n3"]
    assert harness.node_counts("train") == (2, 0, 1)


def test_a_node_has_the_profile_that_it_was_booted_with(world: WorldHarness) -> None:
    # given a NodePool with a Node, whose image changes
    world.given_data_center()
    world.apply("train", 1)
    before = pool_status(world)
    world.apply("train", 1, image={"name": "new", "kernel": "6.8", "releaseTrain": "latest"})

    # when a second Node is booted, and then the first one again
    world.scale("train", 2)
    mixed = pool_status(world)
    profiles = [field(node, "status", "nodeProfile") for node in world.documents("nodes").values()]
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=30)
    after = pool_status(world)

    # then each carries the profile that it was booted with, and the NodePool says so
    old, new = f"{H100}/default", f"{H100}/new:6.8@latest"
    assert (before["nodeProfile"], before.get("otherNodeProfiles")) == (old, None)
    assert (mixed["nodeProfile"], mixed["otherNodeProfiles"]) == (new, {old: 1})
    assert sorted(map(str, profiles)) == [old, new]
    assert (after["nodeProfile"], after.get("otherNodeProfiles")) == (new, None)
