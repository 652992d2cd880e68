"""A message that cannot be processed is an InternalError on a condition, and stops no service."""

import json

import pytest

from nodepool.contract.events import QuotaSet
from support.constants import H100, INJECTED, ZONE
from support.failing import Failing, given_broken, given_failing
from support.harness import Harness
from support.services import NAMES, services
from support.world_harness import WorldHarness

UNREADABLE = b'{"specversion": "1.0"'


def publish_forged(harness: Harness, service: str, name: str, content: dict[str, object]) -> None:
    """Publishes an event about the NodePool `train` that its service has not decided."""
    envelope = {"id": f"forged-{name}", "type": name, "source": service, "data": content}
    subject = f"np.evt.{service}.acme.prod.train.{name}"
    harness.publish(subject, json.dumps(envelope).encode())


def test_a_quota_that_cannot_be_checked_is_an_internal_error(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.apply("serve", 1)
    harness.start_recording()

    harness.publish("np.evt.validator.acme.prod.train.NodePoolValidated", UNREADABLE)

    assert harness.conditions("train")["Quota"] == "InternalError"
    assert harness.condition("train", "Quota").startswith(
        "Unknown InternalError: internal error while checking quota: the content is not JSON"
    )
    assert "CWNodePoolQuotaCheckFailed" in harness.events("train")
    assert "quota: NodePoolValidated" in harness.dead_letters()
    assert harness.messages("serve") == []


def test_a_capacity_that_cannot_be_checked_is_an_internal_error(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.apply("serve", 1)
    harness.start_recording()

    harness.publish("np.evt.quota.acme.prod.train.QuotaChecked", UNREADABLE)

    assert harness.conditions("train")["Capacity"] == "InternalError"
    assert "capacity: QuotaChecked" in harness.dead_letters()
    assert harness.messages("serve") == []


@pytest.mark.parametrize("target", [1, 2])
def test_a_capacity_that_could_not_be_checked_is_checked_when_a_machine_comes(target: int) -> None:
    # given a pool with one Node, whose capacity cannot be checked while there are machines enough
    world = Failing("capacity", "QuotaChecked", 2).world()
    world.given_data_center(machines=3)
    world.apply("train", 1)
    world.apply("train", target, nodeLabels={"team": "red"})
    failed = world.conditions("train")["Capacity"]

    world.given_machines(1)

    assert failed == "InternalError"
    assert world.conditions("train")["Capacity"] == "Sufficient"
    assert world.node_counts("train") == (target, 0, target)


def test_an_allocation_that_cannot_be_decided_is_an_internal_error(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.apply("serve", 1)
    harness.start_recording()

    harness.publish("np.evt.capacity.acme.prod.train.CapacityChecked", UNREADABLE)

    assert harness.conditions("train")["AtTarget"] == "InternalError"
    assert harness.messages("train") == ["AllocationFailed", "CWNodePoolNodesRequestFailed"]
    assert sorted(harness.dead_letters()) == [
        "aggregator: CapacityChecked",
        "allocator: CapacityChecked",
    ]
    assert harness.messages("serve") == []


@pytest.mark.parametrize(
    ("late", "unreadable"),
    [
        ("quota", "np.evt.validator.acme.prod.train.NodePoolValidated"),
        ("capacity", "np.evt.quota.acme.prod.train.QuotaChecked"),
    ],
)
def test_what_failed_for_a_pool_that_is_deleted_does_not_show_on_its_successor(
    world: WorldHarness, late: str, unreadable: str
) -> None:
    world.given_data_center()
    world.apply("train", 0)
    world.apply("like", 1, region="US-EAST-01A")

    # when a service is so late that another NodePool has the name by now
    with world.paused(late):
        world.put(unreadable, UNREADABLE, "")
        world.delete("train")
        world.apply("train", 1, region="US-EAST-01A")

    assert f"{late}: {unreadable.rpartition('.')[2]}" in world.dead_letters()
    assert world.conditions("train") == world.conditions("like")


@pytest.mark.parametrize(
    ("late", "failing"), [("quota", "NodePoolValidated"), ("capacity", "QuotaChecked")]
)
def test_a_check_that_fails_late_does_not_show_on_a_pool_that_is_invalid_by_then(
    late: str, failing: str
) -> None:
    # given a check that fails for the first version of a pool
    world = given_failing(late, failing)
    world.given_data_center()

    # when the service is so late that the newest version is invalid by then
    with world.paused(late):
        world.apply("train", 1)
        world.apply("train", 2, region="US-EAST-01A")

    assert f"{late}: {failing}" in world.dead_letters()
    assert "InternalError" not in world.conditions("train").values()


def test_a_node_that_capacity_cannot_count_does_not_show_on_an_invalid_pool(
    world: WorldHarness,
) -> None:
    # given a pool that has become invalid, and keeps its Nodes
    world.given_data_center()
    world.apply("train", 1)
    world.apply("train", 1, region="US-EAST-01A")
    before = world.condition("train", "Capacity")

    world.publish("np.evt.lifecycle.acme.prod.train.CWNodeCordoned", UNREADABLE)

    assert "capacity: CWNodeCordoned" in world.dead_letters()
    assert world.condition("train", "Capacity") == before


def test_what_failed_before_there_was_a_pool_does_not_show_on_it(world: WorldHarness) -> None:
    world.given_data_center(quota=0)
    with world.paused("allocator"):
        world.put("np.evt.capacity.acme.prod.train.CapacityChecked", UNREADABLE, "")
        world.apply("train", 1)

    assert "allocator: CapacityChecked" in world.dead_letters()
    assert world.conditions("train")["AtTarget"] == "UnderTarget"


def test_a_removal_that_cannot_be_carried_out_is_an_internal_error(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", graceS=60)
    world.delete("train")
    world.start_recording()

    world.publish("np.evt.allocator.acme.prod.train.CWNodeDeletionRequestSuccess", UNREADABLE)
    failed = world.conditions("train")["NodesRemoved"], world.events("train")
    world.pass_time(minutes=1)

    assert failed == ("InternalError", ["CWNodePoolNodesRemoveError"])
    assert sorted(world.dead_letters()) == [
        "lifecycle: CWNodeDeletionRequestSuccess",
        "preemption: CWNodeDeletionRequestSuccess",
    ]
    assert world.node_pool("train") is None


def test_a_removal_that_fails_is_told_although_another_step_failed_alike_before(
    world: WorldHarness,
) -> None:
    # given a NodePool of which lifecycle could not read a new version
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", graceS=600)
    world.publish("np.evt.validator.acme.prod.train.NodePoolValidated", UNREADABLE)
    world.delete("train")
    world.start_recording()

    # when it cannot read a request to remove a Node
    world.publish("np.evt.allocator.acme.prod.train.CWNodeDeletionRequestSuccess", UNREADABLE)

    assert world.conditions("train")["NodesRemoved"] == "InternalError"
    assert world.events("train") == ["CWNodePoolNodesRemoveError"]


def test_a_removal_that_failed_shows_until_it_succeeds_whichever_nodes_leave(
    world: WorldHarness,
) -> None:
    # given a deletion of which a decision of the lifecycle fails
    world.given_data_center()
    world.apply("train", 2)
    world.run_pod("n1", graceS=600)
    world.run_pod("n2", graceS=20)
    world.delete("train")
    world.publish("np.evt.allocator.acme.prod.train.CWNodeDeletionRequestSuccess", UNREADABLE)
    failed = world.condition("train", "NodesRemoved")

    # when a Node leaves before the decision is tried again
    world.pass_time(seconds=30)
    left, still_failed = world.nodes("train"), world.condition("train", "NodesRemoved")
    kstatus = "Stalled" in world.conditions("train")
    world.pass_time(seconds=30)

    assert left == ["n1"]
    assert still_failed == failed
    assert kstatus
    assert world.conditions("train")["NodesRemoved"] == "Pending"


@pytest.mark.parametrize("subject", ["allocator", "capacity"])
def test_an_error_after_the_last_node_left_does_not_bring_the_removal_back(
    world: WorldHarness, subject: str
) -> None:
    # given a deletion of which a decision of the lifecycle fails, or one of the allocator later
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", graceS=20)
    world.delete("train")
    unreadable = {"allocator": "CWNodeDeletionRequestSuccess", "capacity": "CapacityChecked"}
    subjects = {each: f"np.evt.{each}.acme.prod.train.{unreadable[each]}" for each in unreadable}
    if subject == "allocator":
        world.publish(subjects[subject], UNREADABLE)
    with world.paused("validator"):
        # when the last Node leaves, and the failed decision is tried again
        world.pass_time(seconds=30)
        gone = world.condition("train", "NodesRemoved")
        if subject == "capacity":
            world.publish(subjects[subject], UNREADABLE)
        world.pass_time(minutes=2)
        later = world.condition("train", "NodesRemoved")

    # then the removal stays complete
    assert gone == later == "True Complete: All Nodes are removed."


@pytest.mark.parametrize("also", ["", "allocator", "lifecycle"])
def test_a_deletion_that_cannot_be_ended_is_an_internal_error_until_it_can(also: str) -> None:
    # given a NodePool that is being deleted, and a validator that cannot end that
    broken: set[tuple[str, str]] = set()
    world = given_broken("validator", broken)
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", graceS=20)
    world.delete("train")
    broken.add(("validator", "acme/prod/train"))

    # when its last Node leaves, another service fails once too, and the validator is mended later
    world.pass_time(minutes=1)
    if also:
        name = "np.evt.capacity.acme.prod.train.CapacityChecked"
        if also == "lifecycle":
            name = "np.evt.allocator.acme.prod.train.CWNodeDeletionRequestSuccess"
        world.publish(name, UNREADABLE)
    world.pass_time(minutes=50)
    failed, stalled = world.condition("train", "NodesRemoved"), world.conditions("train")["Stalled"]
    broken.clear()
    world.pass_time(minutes=16)

    # then the condition names the cause, whatever else failed and was tried again
    assert failed == (
        "Unknown InternalError: internal error while updating the NodePool: "
        f"RuntimeError: {INJECTED}"
    )
    assert stalled == "InternalError"
    assert world.node_pool("train") is None


def test_a_scale_down_that_cannot_be_carried_out_is_an_internal_error_until_it_can() -> None:
    # given a lifecycle service that cannot decide on one NodePool
    broken: set[tuple[str, str]] = set()
    world = given_broken("lifecycle", broken)
    world.given_data_center()
    world.apply("train", 4)
    world.apply("serve", 1)
    broken.add(("lifecycle", "acme/prod/train"))

    # when surplus Nodes are to leave, and the service is mended later
    world.scale("train", 1)
    world.scale("serve", 0)
    world.pass_time(minutes=40)
    failed, other = world.condition("train", "AtTarget"), world.conditions("serve")["AtTarget"]
    stalled = world.conditions("train")["Stalled"]
    broken.clear()
    world.pass_time(minutes=16)

    # then the condition names the cause, and only of that NodePool
    assert failed == (
        f"Unknown InternalError: internal error while removing a Node: RuntimeError: {INJECTED}"
    )
    assert (other, stalled) == ("TargetMet", "InternalError")
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_nodes_that_cannot_be_updated_are_an_internal_error_until_they_can() -> None:
    # given a lifecycle service that cannot decide on one NodePool
    broken: set[tuple[str, str]] = set()
    world = given_broken("lifecycle", broken)
    world.given_data_center()
    world.apply("train", 1)
    world.apply("serve", 1)
    broken.add(("lifecycle", "acme/prod/train"))

    # when the Nodes are to have labels, and the service is mended later
    world.apply("train", 1, nodeLabels={"team": "red"})
    world.apply("serve", 1, nodeLabels={"team": "red"})
    world.pass_time(minutes=40)
    failed, other = world.condition("train", "AtTarget"), world.conditions("serve")["AtTarget"]
    broken.clear()
    world.pass_time(minutes=16)

    # then the condition names the cause, and only of that NodePool
    assert failed == (
        f"Unknown InternalError: internal error while updating a Node: RuntimeError: {INJECTED}"
    )
    assert other == "TargetMet"
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_node_that_cannot_join_for_an_internal_error_shows_it_until_it_joins() -> None:
    # given a lifecycle service that fails on the report of a boot
    world = given_failing("lifecycle", "MachineBooted")
    world.given_data_center()

    # when a Node boots, and the failed decision is tried again
    world.apply("train", 1)
    failed = world.condition("train", "AtTarget")
    world.pass_time(minutes=1)

    assert failed == (
        f"Unknown InternalError: internal error while updating a Node: RuntimeError: {INJECTED}"
    )
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_broken_invariant_of_one_pool_leaves_the_others_alone(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.apply("serve", 1)
    harness.start_recording()

    publish_forged(
        harness,
        "allocator",
        "CWNodeAssigned",
        {
            "org": "acme",
            "cluster": "prod",
            "pool": "train",
            "message": "",
            "uid": "",
            "node": harness.machine_name("n2"),
            "zone": ZONE,
            "assignment": 99,
            "instanceType": H100,
        },
    )
    broken = harness.conditions("train")["Capacity"]
    harness.scale("serve", 2)
    harness.scale("train", 2)

    assert broken == "InternalError"
    assert harness.node_counts("serve") == (2, 0, 2)
    assert harness.node_counts("train") == (2, 0, 2)
    assert harness.conditions("train")["Capacity"] == "Sufficient"


@pytest.mark.parametrize(
    ("condition", "subject"),
    [
        ("Quota", "np.evt.validator.acme.prod.train.NodePoolValidated"),
        ("Capacity", "np.evt.quota.acme.prod.train.QuotaChecked"),
        ("AtTarget", "np.evt.capacity.acme.prod.train.CapacityChecked"),
    ],
)
def test_an_internal_error_ends_with_the_next_change(
    harness: Harness, condition: str, subject: str
) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.publish(subject, UNREADABLE)

    harness.scale("train", 2)

    assert harness.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Under",
        "AtTarget": "TargetMet",
    }
    assert harness.node_counts("train") == (2, 0, 2)


def test_a_capacity_check_that_failed_is_made_again_when_machines_arrive(harness: Harness) -> None:
    harness.given_data_center(machines=1)
    harness.apply("train", 2)
    harness.publish("np.evt.quota.acme.prod.train.QuotaChecked", UNREADABLE)
    failed = harness.conditions("train")["Capacity"]

    harness.given_machines(1)

    assert failed == "InternalError"
    assert harness.conditions("train")["Capacity"] == "Sufficient"
    assert harness.node_counts("train") == (2, 0, 2)


def test_a_validation_that_fails_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(_spec: object, _zone: str) -> None:
        raise LookupError("no such rule")

    monkeypatch.setattr("validator.objects.verdict", verdict)
    world = WorldHarness()
    world.given_data_center()

    command = world.apply("train", 1)

    assert world.outcomes(command) == ["created 1"]
    assert world.condition("train", "Validated") == (
        "Unknown InternalError: internal error while validating: LookupError: no such rule"
    )
    assert world.node_counts("train") == (1, 0, 0)
    assert world.replay_differs() == []


def test_an_event_with_fields_of_a_later_version_is_read(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    content = {"zone": "US-EAST-04A", "machine": "gffffff", "instanceType": "gd-8xh100ib-i128"}
    envelope = {"id": "later", "type": "MachineAdded", "source": "fleet", "colour": "red"}
    harness.publish(
        "np.evt.fleet.fleet.US-EAST-04A.gffffff.MachineAdded",
        json.dumps({**envelope, "data": {**content, "height": 3}}).encode(),
    )

    assert harness.dead_letters() == []
    assert harness.documents("capacity")["US-EAST-04A/gd-8xh100ib-i128"]["free"] == 10


def test_an_unknown_event_is_ignored(harness: Harness) -> None:
    harness.given_data_center()

    harness.publish("np.evt.allocator.acme.prod.train.CWNodePainted", b"{}")
    harness.apply("train", 1)

    assert harness.dead_letters() == []
    assert harness.node_counts("train") == (1, 0, 1)


def test_an_event_on_another_services_subject_is_ignored(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.start_recording()

    harness.publish("np.evt.fleet.acme.prod.train.QuotaChecked", UNREADABLE)

    assert harness.messages("train") == []
    assert harness.dead_letters() == []


@pytest.mark.parametrize("name", NAMES)
def test_unreadable_events_on_its_own_subjects_change_no_service(
    world: WorldHarness, name: str
) -> None:
    world.given_data_center()
    (service,) = services(name)
    subjects = [f"np.evt.{name}.acme.prod.train.{output}" for output in service.outputs]

    for subject in subjects:
        world.put(subject, b"noise", "")
    world.restart(name)
    world.run_until_idle()

    assert name not in world.replay_differs()


def test_a_foreign_commit_record_stops_no_service(world: WorldHarness) -> None:
    world.given_cluster()
    world.given_quota(3)

    world.put("np.commit.quota", b"hello", "")
    world.given_quota(5)

    messages = (envelope.data for envelope in world.envelopes())
    limits = [message.limit for message in messages if isinstance(message, QuotaSet)]
    assert limits == [3, 5]
