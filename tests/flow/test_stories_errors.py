"""A service that cannot decide says InternalError on its own condition, and goes on."""

import json

import pytest

from nodepool.contract.events import QuotaSet
from support.stage import H100, ZONE, Stage, WorldStage, services

UNREADABLE = b'{"specversion": "1.0"'


def forged(stage: Stage, service: str, name: str, content: dict[str, object]) -> None:
    """An event that its own service never said, on the bus for the pool `train`."""
    envelope = {"id": f"forged-{name}", "type": name, "source": service, "data": content}
    subject = f"np.evt.{service}.acme.prod.train.{name}"
    stage.publish(subject, json.dumps(envelope).encode())


def test_a_quota_that_cannot_be_checked_is_an_internal_error(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.apply("serve", 1)
    stage.listen()

    stage.publish("np.evt.validator.acme.prod.train.NodePoolValidated", UNREADABLE)

    assert stage.conditions("train")["Quota"] == "InternalError"
    assert stage.condition("train", "Quota").startswith(
        "Unknown InternalError: internal error while checking quota: the content is not JSON"
    )
    assert "CWNodePoolQuotaCheckFailed" in stage.events("train")
    assert "quota: NodePoolValidated" in stage.dead_letters()
    assert stage.story("serve") == []


def test_a_capacity_that_cannot_be_checked_is_an_internal_error(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.apply("serve", 1)
    stage.listen()

    stage.publish("np.evt.quota.acme.prod.train.QuotaChecked", UNREADABLE)

    assert stage.conditions("train")["Capacity"] == "InternalError"
    assert "capacity: QuotaChecked" in stage.dead_letters()
    assert stage.story("serve") == []


def test_an_allocation_that_cannot_be_decided_is_an_internal_error(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.apply("serve", 1)
    stage.listen()

    stage.publish("np.evt.capacity.acme.prod.train.CapacityChecked", UNREADABLE)

    assert stage.conditions("train")["AtTarget"] == "InternalError"
    assert stage.story("train") == ["AllocationFailed", "CWNodePoolNodesRequestFailed"]
    assert sorted(stage.dead_letters()) == [
        "aggregator: CapacityChecked",
        "allocator: CapacityChecked",
    ]
    assert stage.story("serve") == []


def test_a_removal_that_cannot_be_carried_out_is_an_internal_error(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1)
    world.run_pod("n1", graceS=60)
    world.delete("train")
    world.listen()

    world.publish("np.evt.allocator.acme.prod.train.CWNodeDeletionRequestSuccess", UNREADABLE)
    failed = world.conditions("train")["NodesRemoved"], world.events("train")
    world.pass_time(minutes=1)

    assert failed == ("InternalError", ["CWNodePoolNodesRemoveError"])
    assert world.dead_letters() == ["lifecycle: CWNodeDeletionRequestSuccess"]
    assert world.shown("train") is None


def test_a_broken_invariant_of_one_pool_leaves_the_others_alone(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.apply("serve", 1)
    stage.listen()

    forged(
        stage,
        "allocator",
        "CWNodeAssigned",
        {
            "org": "acme",
            "cluster": "prod",
            "pool": "train",
            "message": "",
            "uid": "",
            "node": stage.machine("n2"),
            "zone": ZONE,
            "assignment": 99,
            "instanceType": H100,
        },
    )
    broken = stage.conditions("train")["Capacity"]
    stage.scale("serve", 2)
    stage.scale("train", 2)

    assert broken == "InternalError"
    assert stage.counts("serve") == (2, 0, 2)
    assert stage.counts("train") == (2, 0, 2)
    assert stage.conditions("train")["Capacity"] == "Sufficient"


@pytest.mark.parametrize(
    ("condition", "subject"),
    [
        ("Quota", "np.evt.validator.acme.prod.train.NodePoolValidated"),
        ("Capacity", "np.evt.quota.acme.prod.train.QuotaChecked"),
        ("AtTarget", "np.evt.capacity.acme.prod.train.CapacityChecked"),
    ],
)
def test_an_internal_error_ends_with_the_next_change(
    stage: Stage, condition: str, subject: str
) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.publish(subject, UNREADABLE)

    stage.scale("train", 2)

    assert stage.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Under",
        "AtTarget": "TargetMet",
    }
    assert stage.counts("train") == (2, 0, 2)


def test_a_capacity_check_that_failed_is_made_again_when_machines_arrive(stage: Stage) -> None:
    stage.given_house(machines=1)
    stage.apply("train", 2)
    stage.publish("np.evt.quota.acme.prod.train.QuotaChecked", UNREADABLE)
    failed = stage.conditions("train")["Capacity"]

    stage.given_machines(1)

    assert failed == "InternalError"
    assert stage.conditions("train")["Capacity"] == "Sufficient"
    assert stage.counts("train") == (2, 0, 2)


def test_a_validation_that_fails_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(_spec: object, _zone: str) -> None:
        raise LookupError("no such rule")

    monkeypatch.setattr("validator.objects.verdict", verdict)
    world = WorldStage()
    world.given_house()

    asked = world.apply("train", 1)

    assert world.outcomes(asked) == ["created 1"]
    assert world.condition("train", "Validated") == (
        "Unknown InternalError: internal error while validating: LookupError: no such rule"
    )
    assert world.counts("train") == (1, 0, 0)
    assert world.replay_differs() == []


def test_an_event_with_fields_from_a_later_edition_is_read(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)

    content = {"zone": "US-EAST-04A", "machine": "gffffff", "instanceType": "gd-8xh100ib-i128"}
    envelope = {"id": "later", "type": "MachineAdded", "source": "fleet", "colour": "red"}
    stage.publish(
        "np.evt.fleet.fleet.US-EAST-04A.gffffff.MachineAdded",
        json.dumps({**envelope, "data": {**content, "height": 3}}).encode(),
    )

    assert stage.dead_letters() == []
    assert stage.documents("capacity")["US-EAST-04A/gd-8xh100ib-i128"]["free"] == 10


def test_an_event_that_nobody_knows_is_passed_over(stage: Stage) -> None:
    stage.given_house()

    stage.publish("np.evt.allocator.acme.prod.train.CWNodePainted", b"{}")
    stage.apply("train", 1)

    assert stage.dead_letters() == []
    assert stage.counts("train") == (1, 0, 1)


def test_an_event_on_another_services_subject_is_passed_over(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.listen()

    stage.publish("np.evt.fleet.acme.prod.train.QuotaChecked", UNREADABLE)

    assert stage.story("train") == []
    assert stage.dead_letters() == []


@pytest.mark.parametrize("name", [service.name for service in services()])
def test_noise_on_a_services_own_subject_does_not_disturb_it(world: WorldStage, name: str) -> None:
    world.given_house()
    subjects = [
        f"np.evt.{name}.acme.prod.train.{kind}"
        for kind in next(s for s in services() if s.name == name).outputs
    ]

    for subject in subjects:
        world.world.log.append(subject, b"noise", "")
    world.restart(name)
    world.run_until_idle()

    assert [service for service in world.replay_differs() if service == name] == []


def test_a_record_that_nobody_of_us_wrote_stops_no_service() -> None:
    # given a house with a limit
    stage = WorldStage()
    stage.given_cluster()
    stage.given_quota(3)

    # when somebody writes where only commit records belong
    stage.world.publish("np.commit.quota", b"hello")
    stage.given_quota(5)

    # then the next limit is set all the same
    limits = [said.limit for said in stage.world.messages(QuotaSet) if isinstance(said, QuotaSet)]
    assert limits == [3, 5]
    assert stage.world.replay_differs() == []
