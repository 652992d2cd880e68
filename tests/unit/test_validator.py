from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    ScaleNodePool,
)
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    ClusterRegistered,
    CommandAccepted,
    CWInstanceTypeNotInZone,
    CWInvalidInstanceType,
    CWNodePoolCreated,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    NodePoolDeleting,
    NodePoolValidated,
)
from nodepool.contract.keys import PoolKey
from nodepool.contract.messages import Message
from nodepool.contract.model import ManifestMetadata, NodePoolSpec, RemovalReason
from nodepool.engine.snapshot import dump, load
from support.single import NOON, SingleService
from support.texts import refusal
from validator import Hears, Says, objects
from validator.decide import SERVICE
from validator.state import State
from validator.verdict import Verdict

ZONE, H100 = "US-EAST-02A", "gd-8xh100ib-i128"
TRAIN = PoolKey("acme/prod/train")


class Story(SingleService[State, Hears, Says]):
    """The validator service, one message a second from noon on."""

    def __init__(self) -> None:
        super().__init__(SERVICE)

    @property
    def train(self) -> NodePoolValidated:
        """The NodePool `train` as it is stored."""
        return self.state.pools[TRAIN].stored


def a_cluster() -> Story:
    """A story that begins with a registered cluster."""
    story = Story()
    story.hears(register())
    return story


def a_pool() -> Story:
    """A story that begins with a cluster and the NodePool `train` of 3 Nodes."""
    story = a_cluster()
    story.hears(apply(3))
    return story


def register(org: str = "acme", cluster: str = "prod", zone: str = ZONE) -> RegisterCluster:
    """The registration of a cluster."""
    return RegisterCluster(org=org, cluster=cluster, zone=zone)


def apply(
    target: int,
    metadata: Mapping[str, object] | None = None,
    spec: Mapping[str, object] | None = None,
    *,
    dry_run: bool = False,
) -> ApplyNodePool:
    """A manifest of the NodePool `train`, with these further fields in its metadata and spec."""
    document = {"instanceType": H100, "targetNodes": target, **(spec or {})}
    return ApplyNodePool(
        org="acme",
        cluster="prod",
        pool="train",
        metadata=ManifestMetadata.model_validate({"name": "train", **(metadata or {})}),
        spec=NodePoolSpec.model_validate(document),
        dry_run=dry_run,
    )


def scale(target: int, version: str | None = None, *, dry_run: bool = False) -> ScaleNodePool:
    """A new target for the NodePool `train`."""
    return ScaleNodePool(
        org="acme",
        cluster="prod",
        pool="train",
        target_nodes=target,
        resource_version=version,
        dry_run=dry_run,
    )


def delete(version: str | None = None, *, dry_run: bool = False) -> DeleteNodePool:
    """The deletion of the NodePool `train`."""
    return DeleteNodePool(
        org="acme", cluster="prod", pool="train", resource_version=version, dry_run=dry_run
    )


def removed(
    uid: str, removal: RemovalReason = RemovalReason.POOL_DELETED
) -> CWNodePoolNodesRemoved:
    """The last Nodes of the NodePool `train` are gone."""
    return CWNodePoolNodesRemoved(
        org="acme",
        cluster="prod",
        pool="train",
        uid=uid,
        count=3,
        remaining=0,
        removal=removal,
        message="",
    )


def result(outputs: Sequence[Message]) -> tuple[str, int | None]:
    """The result and the generation of the outcome, which comes first."""
    outcome = outputs[0]
    assert isinstance(outcome, CommandAccepted)
    return outcome.result, outcome.generation


def names(outputs: Sequence[Message]) -> list[str]:
    """The names of the outputs."""
    return [type(message).__name__ for message in outputs]


# Clusters.


def test_a_cluster_is_registered_in_its_zone() -> None:
    outputs = Story().hears(register())

    assert outputs == [
        CommandAccepted(
            org="acme", cluster="prod", pool="_", command="RegisterCluster", result="created"
        ),
        ClusterRegistered(org="acme", cluster="prod", zone=ZONE),
    ]


def test_a_cluster_that_is_registered_already_stays_as_it_is() -> None:
    outputs = a_cluster().hears(register())

    assert len(outputs) == 1
    assert result(outputs) == ("unchanged", None)


KUBERNETES, OTHER = "11aa", "22bb"
"""The uids of the namespace kube-system of two clusters."""


def connect(uid: str, replaces: str = "") -> RegisterCluster:
    """The registration of a cluster that an agent connects to this Kubernetes."""
    return RegisterCluster(
        org="acme",
        cluster="prod",
        zone=ZONE,
        kubernetes=True,
        kubernetes_uid=uid,
        replaces=replaces,
    )


def test_a_cluster_is_the_kubernetes_that_was_registered_first_until_another_one_replaces_it() -> (
    None
):
    # given a cluster that an agent connects which does not know its Kubernetes, then one that does
    story = a_cluster()
    steps = [connect(""), connect(KUBERNETES), register(), connect(KUBERNETES)]
    outcomes = [result(story.hears(each)) for each in steps]

    # when an agent of another one comes, and then takes its place by intention
    refused = refusal(story.hears(connect(OTHER)))
    wrong = refusal(story.hears(connect(OTHER, replaces="33cc")))
    replaced = story.hears(connect(OTHER, replaces=KUBERNETES))
    late = refusal(story.hears(connect(KUBERNETES)))
    again = result(story.hears(connect(OTHER, replaces=KUBERNETES)))
    unknown = refusal(story.hears(connect("")))

    # then the first one counts until that, and the other one after it
    assert outcomes == [
        ("configured", None),
        ("configured", None),
        ("unchanged", None),
        ("unchanged", None),
    ]
    assert refused == wrong
    assert refused == (
        "Conflict kubernetesUid: acme/prod is the Kubernetes cluster whose namespace kube-system"
        " has the uid 11aa, and here it is 22bb: give this one a name of its own; or, if the other"
        " one is gone for good: nodepool register cluster prod --zone US-EAST-02A"
        " --kubernetes-uid 22bb --replaces 11aa --org acme"
    )
    assert replaced[1:] == [
        ClusterRegistered(
            org="acme", cluster="prod", zone=ZONE, kubernetes=True, kubernetes_uid=OTHER
        )
    ]
    assert "has the uid 22bb, and here it is 11aa" in late
    assert again == ("unchanged", None)
    assert unknown.endswith(
        "the uid 22bb; an agent that may not get that namespace cannot register it"
    )


def test_only_a_cluster_that_is_registered_is_replaced() -> None:
    assert refusal(Story().hears(connect(OTHER, replaces=KUBERNETES))) == (
        "Conflict replaces: there is no cluster acme/prod yet: leave it out"
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kubernetes_uid": "11aa"}, "Invalid kubernetesUid: needs kubernetes: true"),
        (
            {"kubernetes": True, "replaces": "11aa"},
            "Invalid replaces: needs kubernetesUid, that of the cluster that takes its place",
        ),
        (
            {"kubernetes": True, "kubernetes_uid": "$(reboot)"},
            "Invalid kubernetesUid: '$(reboot)' is no uid: lower case letters, digits and -",
        ),
        (
            {"kubernetes": True, "kubernetes_uid": "11aa", "replaces": "A B"},
            "Invalid replaces: 'A B' is no uid: lower case letters, digits and -",
        ),
    ],
)
def test_which_kubernetes_a_cluster_is_has_to_be_clear(
    fields: Mapping[str, object], expected: str
) -> None:
    command = RegisterCluster.model_validate(
        {"org": "acme", "cluster": "prod", "zone": ZONE, **fields}
    )

    assert refusal(a_cluster().hears(command)) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (register(zone="MARS-01A"), "Invalid zone: MARS-01A is not a known zone"),
        (
            register(zone="us-east-4a"),
            "Invalid zone: us-east-4a is not a known zone; did you mean US-EAST-04A?",
        ),
        (register("fleet"), "Invalid org: fleet is a reserved word, not an organisation"),
        (
            register("control-plane"),
            "Invalid org: control-plane is a reserved word, not an organisation",
        ),
        (
            register(zone="RNO2A"),
            "Conflict zone: the cluster lies in US-EAST-02A and cannot move",
        ),
    ],
)
def test_a_cluster_that_cannot_be_registered_is_refused(
    command: RegisterCluster, expected: str
) -> None:
    assert refusal(a_cluster().hears(command)) == expected


@pytest.mark.parametrize(
    ("command", "fault"), [(register("Acme"), "org"), (register(cluster="a b"), "cluster")]
)
def test_organisations_and_clusters_have_names_of_dns_labels(
    command: RegisterCluster, fault: str
) -> None:
    assert refusal(Story().hears(command)).startswith(f"Invalid {fault}: ")


# A NodePool is created and changed.


def test_a_manifest_creates_a_nodepool() -> None:
    story = a_cluster()

    outputs = story.hears(apply(3, {"labels": {"a": "b"}}))

    accepted, created, validated = outputs
    assert isinstance(validated, NodePoolValidated)
    assert accepted == CommandAccepted(
        org="acme",
        cluster="prod",
        pool="train",
        command="ApplyNodePool",
        result="created",
        generation=1,
    )
    assert created == CWNodePoolCreated(
        org="acme", cluster="prod", pool="train", message="NodePool train is created"
    )
    assert (validated.generation, validated.version, validated.reason) == (1, 2, Validated.VALID)
    assert validated.created == NOON + timedelta(seconds=2)
    assert dict(validated.labels) == {"a": "b"}
    assert story.train == validated


def test_a_nodepool_created_anew_has_another_uid() -> None:
    story = a_pool()
    first = story.train.uid
    story.hears(delete())
    story.hears(removed(first))

    story.hears(apply(3))

    assert story.train.uid != first


def test_a_new_spec_is_a_new_generation_of_the_same_object() -> None:
    story = a_pool()
    before = story.train

    outputs = story.hears(apply(4))

    assert result(outputs) == ("configured", 2)
    assert names(outputs) == ["CommandAccepted", "NodePoolValidated"]
    assert (story.train.uid, story.train.created) == (before.uid, before.created)
    assert story.train.version == 3


def test_new_metadata_is_no_new_generation() -> None:
    story = a_pool()

    outputs = story.hears(apply(3, {"labels": {"a": "b"}}))

    assert result(outputs) == ("configured", 1)
    assert dict(story.train.labels) == {"a": "b"}


def test_the_same_manifest_again_changes_nothing() -> None:
    story = a_pool()

    outputs = story.hears(apply(3))

    assert len(outputs) == 1
    assert result(outputs) == ("unchanged", 1)


def test_scaling_changes_the_target_alone() -> None:
    story = a_cluster()
    story.hears(apply(3, {"labels": {"a": "b"}}, {"nodeLabels": {"team": "ml"}}))

    outputs = story.hears(scale(5))

    assert result(outputs) == ("configured", 2)
    assert story.train.spec.target == 5
    assert dict(story.train.labels) == {"a": "b"}
    assert story.train.spec.node_labels == {"team": "ml"}


def test_scaling_to_the_target_that_holds_changes_nothing() -> None:
    outputs = a_pool().hears(scale(3))

    assert len(outputs) == 1
    assert result(outputs) == ("unchanged", 1)


def test_scaling_beyond_the_bounds_of_autoscaling_is_refused() -> None:
    story = a_cluster()
    story.hears(apply(3, spec={"autoscaling": True, "minNodes": 1, "maxNodes": 4}))

    assert refusal(story.hears(scale(5))) == (
        "Invalid spec.targetNodes:"
        " must lie between minNodes 1 and maxNodes 4 while autoscaling is true"
    )


def test_a_repeated_command_has_its_outcome_and_does_nothing_more() -> None:
    story = a_cluster()
    first = story.hears(apply(3), id="mine")
    story.hears(apply(4))

    again = story.hears(apply(3), id="mine")

    assert again == first[:1]
    assert story.train.spec.target == 4


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (apply(4, dry_run=True), ("configured", 2)),
        (scale(4, dry_run=True), ("configured", 2)),
        (delete(dry_run=True), ("deleted", 1)),
    ],
)
def test_a_dry_run_has_an_outcome_and_changes_nothing(
    command: Hears, expected: tuple[str, int]
) -> None:
    story = a_pool()
    before = story.state

    outputs = story.hears(command)

    assert len(outputs) == 1
    assert result(outputs) == expected
    assert story.state == before


def test_a_dry_run_creates_nothing() -> None:
    story = a_cluster()

    outputs = story.hears(apply(3, dry_run=True))

    assert len(outputs) == 1
    assert result(outputs) == ("created", 1)
    assert not story.state.pools


# Commands that do not fit what is stored.


@pytest.mark.parametrize("command", [apply(1), scale(1), delete()])
def test_a_command_for_an_unknown_cluster_is_refused(command: Hears) -> None:
    assert refusal(Story().hears(command)) == (
        "NotFound cluster: acme/prod is not a known cluster; register it first"
    )


@pytest.mark.parametrize("command", [scale(1), delete()])
def test_a_nodepool_that_does_not_exist_cannot_be_changed(command: Hears) -> None:
    assert refusal(a_cluster().hears(command)) == (
        "NotFound metadata.name: NodePool train does not exist"
    )


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({"resourceVersion": "1"}, "resourceVersion"), ({"uid": "x"}, "uid")],
)
def test_a_manifest_of_an_object_that_is_gone_creates_none(
    metadata: dict[str, object], name: str
) -> None:
    assert refusal(a_cluster().hears(apply(1, metadata))) == (
        f"NotFound metadata.{name}: NodePool train does not exist; leave {name} out to create it"
    )


def test_a_manifest_of_another_object_of_that_name_is_refused() -> None:
    story = a_pool()

    assert refusal(story.hears(apply(1, {"uid": "x"}))) == (
        f"Conflict metadata.uid: is of another NodePool; this one has uid {story.train.uid}"
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (apply(1, {"resourceVersion": "1"}), "metadata.resourceVersion"),
        (scale(1, "1"), "resourceVersion"),
        (delete("1"), "resourceVersion"),
    ],
)
def test_a_change_of_an_older_version_is_refused(command: Hears, name: str) -> None:
    assert refusal(a_pool().hears(command)) == (
        f"Conflict {name}: 1 is stale: the NodePool was changed since; read it again"
    )


@pytest.mark.parametrize("version", ["", "x", "1.0", "-1", "9" * 21, "3", "4", "9999"])
def test_a_version_that_cannot_have_been_read_is_refused(version: str) -> None:
    assert refusal(a_pool().hears(scale(1, version))) == (
        "Invalid resourceVersion: must be a resourceVersion as it was read"
    )


def test_a_version_that_a_new_status_gave_the_object_is_accepted() -> None:
    story = a_pool()
    story.position += 10

    assert result(story.hears(scale(1, "9"))) == ("configured", 2)


def test_a_newer_version_of_an_older_spec_is_refused() -> None:
    story = a_pool()
    story.hears(scale(4))
    story.position += 10

    outputs = story.hears(apply(5, {"resourceVersion": "9", "generation": 1}))

    assert refusal(outputs).startswith("Conflict metadata.resourceVersion: 9 is stale")


def test_the_version_and_generation_that_are_stored_can_be_changed() -> None:
    outputs = a_pool().hears(apply(4, {"resourceVersion": "2", "generation": 1}))

    assert result(outputs) == ("configured", 2)


def test_what_may_never_change_is_refused() -> None:
    assert refusal(a_pool().hears(apply(3, spec={"computeClass": "spot"}))) == (
        "Invalid spec.computeClass: ComputeClass cannot be changed"
    )


# The verdict.


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"instanceType": "none-such"}, CWInvalidInstanceType),
        ({"region": "RNO2A"}, CWInstanceTypeNotInZone),
    ],
)
def test_an_invalid_spec_is_stored_with_a_warning(
    fields: dict[str, object], warning: type[Message]
) -> None:
    story = a_cluster()

    outputs = story.hears(apply(3, spec=fields))
    unchanged = story.hears(apply(3, {"labels": {"a": "b"}}, fields))

    assert names(outputs)[2:] == ["NodePoolValidated", warning.__name__]
    assert names(unchanged) == ["CommandAccepted", "NodePoolValidated"]
    assert story.train.reason is Validated.INVALID


def test_a_check_that_fails_is_an_internal_error_of_a_stored_nodepool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "verdict", failing)
    story = a_pool()

    assert story.train.reason is Validated.INTERNAL_ERROR
    assert story.train.message == "internal error while validating: LookupError: no such rule"


def failing(_spec: object, _zone: str) -> Verdict:
    """A check with a bug."""
    raise LookupError("no such rule")


def test_a_check_that_failed_is_made_again_after_one_five_and_fifteen_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a NodePool that cannot be checked
    monkeypatch.setattr(objects, "verdict", failing)
    story = a_pool()
    minutes = []

    # when time passes
    for _ in range(4):
        assert story.due is not None
        minutes.append(round((story.due - story.now).total_seconds() / 60))
        story.now = story.due
        assert names(story.wake_until_idle()) == ["NodePoolValidated"]

    # then it is checked again, and the object stays the same version
    assert minutes == [1, 5, 15, 15]
    assert story.train.version == 2


def test_a_check_that_succeeds_ends_the_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a NodePool of an unknown type that could not be checked
    with monkeypatch.context() as patched:
        patched.setattr(objects, "verdict", failing)
        story = a_cluster()
        story.hears(apply(3, spec={"instanceType": "none-such"}))

    # when it is checked again
    story.now += timedelta(minutes=1)
    outputs = story.wake_until_idle()

    # then its users hear what is wrong with it, and nothing is left to do
    assert names(outputs) == ["NodePoolValidated", "CWInvalidInstanceType"]
    assert story.train.reason is Validated.INVALID
    assert (story.due, len(story.state.work.failures)) == (None, 0)


def test_a_nodepool_that_is_being_deleted_is_not_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "verdict", failing)
    story = a_pool()

    story.hears(delete())

    assert (story.due, len(story.state.work.failures)) == (None, 0)


# Deletion.


def test_a_deleted_nodepool_is_gone_when_its_nodes_are() -> None:
    story = a_pool()
    uid = story.train.uid

    deleting = story.hears(delete())
    gone = story.hears(removed(uid))

    assert result(deleting) == ("deleted", 1)
    assert deleting[1:] == [
        NodePoolDeleting(
            org="acme",
            cluster="prod",
            pool="train",
            uid=uid,
            generation=1,
            since=NOON + timedelta(seconds=3),
        )
    ]
    assert gone == [
        CWNodePoolDeleted(
            org="acme", cluster="prod", pool="train", uid=uid, message="NodePool train is deleted"
        )
    ]
    assert not story.state.pools


def test_a_nodepool_that_is_being_deleted_can_be_deleted_again_and_takes_no_change() -> None:
    story = a_pool()
    story.hears(delete())

    outputs = story.hears(delete())

    assert len(outputs) == 1
    assert result(outputs) == ("deleted", 1)
    for command in (apply(4), scale(4)):
        assert refusal(story.hears(command)) == (
            "Conflict metadata.name: NodePool train is being deleted; wait until it is gone"
        )


def test_a_deletion_of_a_nodepool_that_was_made_again_deletes_no_other() -> None:
    story = a_pool()
    uid = story.train.uid

    refused = story.hears(delete().model_copy(update={"uid": "an-earlier-one"}))
    deleted = story.hears(delete().model_copy(update={"uid": uid}))

    assert refusal(refused) == (f"Conflict uid: is of another NodePool; this one has uid {uid}")
    assert result(deleted) == ("deleted", 1)


def test_nodes_that_leave_for_another_reason_delete_no_nodepool() -> None:
    story = a_pool()
    uid = story.train.uid

    assert story.hears(removed(uid)) == []
    story.hears(delete())
    assert story.hears(removed(uid, RemovalReason.SCALE_DOWN)) == []
    assert story.hears(removed("of another life")) == []


# Snapshots.


def test_the_state_comes_back_from_a_snapshot_as_it_was() -> None:
    story = a_cluster()
    story.hears(apply(3, {"labels": {"a": "b"}}, {"computeClass": "spot"}))
    story.hears(delete())

    assert load(State, dump(story.folded)) == story.folded
