from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.samples import affinity_to
from nodepool.contract.affinity import (
    EXPRESSIONS_MAX,
    TERMS_FIELD,
    TERMS_MAX,
    VALUES_MAX,
    Affinity,
)
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES, Access, is_offered
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.conditions import Validated
from nodepool.contract.grammar import NODE_ANNOTATIONS_LIMIT_BYTES, TAINT_EFFECTS
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.contract.rules import RESERVED, Refusal, find_fault, list_size_faults
from nodepool.contract.well_known import (
    GRANTS_RIGHTS,
    SET_BY_CONTROL_PLANE,
    SET_BY_KUBERNETES,
    TAINTS,
)
from validator.conflict import immutable
from validator.verdict import VALID, Verdict, verdict

ZONE, H100 = "US-EAST-02A", "gd-8xh100ib-i128"
RACK, RACK_ZONE = next(
    (instance.id, instance.zones[0])
    for instance in INSTANCE_TYPES.values()
    if instance.rack_size and instance.zones
)
SUPERCHIP, SUPERCHIP_ZONE = next(
    (instance.id, instance.zones[0])
    for instance in INSTANCE_TYPES.values()
    if instance.superchip and not instance.rack_size and instance.zones
)
SPOT_ZONES = (
    "RNO2A, US-CENTRAL-06A, US-EAST-01A, US-EAST-02A, US-EAST-04A, US-EAST-06A, US-WEST-01A,"
    " US-WEST-04A, US-WEST-09B"
)
"""The General Access zones that offer `H100`."""
OTHER_ZONE = next(
    zone for zone in INSTANCE_TYPES[H100].zones if ZONES[zone].access is not Access.GENERAL
)
LABEL_RULE = (
    "must be letters, digits, '-', '_' or '.', with a letter or digit at both ends"
    " (Kubernetes: Labels and Selectors)"
)
NAME_RULE = (
    "must be lower case letters, digits, '-' or '.', with a letter or digit at both ends"
    " of every part (RFC 1123 subdomain)"
)


def spec(target: object = 3, **fields: object) -> NodePoolSpec:
    """A spec, its further fields named as in a manifest."""
    document = {"instanceType": H100, "targetNodes": target, **fields}
    return NodePoolSpec.model_validate(document)


def manifest(
    metadata: Mapping[str, object] | None = None, pool: str = "train", **fields: object
) -> ApplyNodePool:
    """A manifest for a NodePool, with these fields in its spec."""
    return ApplyNodePool(
        org="acme",
        cluster="prod",
        pool=pool,
        metadata=ManifestMetadata.model_validate({"name": pool, **(metadata or {})}),
        spec=spec(**fields),
    )


def affine(*expressions: Mapping[str, object]) -> dict[str, object]:
    """An affinity with one term of these expressions, as a manifest writes it."""
    terms = [{"matchExpressions": list(expressions)}]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> dict[str, str]:
    """A taint as a manifest writes it."""
    return {"key": key, "value": value, "effect": effect}


# Manifests that are refused.


def test_a_plain_manifest_has_no_fault() -> None:
    assert find_fault(manifest()) is None


def test_a_manifest_with_everything_that_is_allowed_has_no_fault() -> None:
    full = manifest(
        {"labels": {"example.com/app": "x", "y": ""}, "annotations": {"Example.com/note": "any √"}},
        pool="train.v1",
        nodeLabels={"cks.coreweave.cloud/system-critical": "true", "team": "ml"},
        nodeAnnotations={"example.com/owner": "Zoë"},
        nodeTaints=[taint("a"), taint("a", "NoExecute"), taint("is_gpu", "NoSchedule", "v")],
        autoscaling=True,
        minNodes=3,
        maxNodes=3,
    )

    assert find_fault(full) is None


@pytest.mark.parametrize(
    ("malformed_manifest", "refusal"),
    [
        pytest.param(
            manifest({"name": "other"}),
            Refusal("metadata.name", "is 'other', but the subject names 'train'"),
            id="another name than the subject's",
        ),
        pytest.param(
            manifest(pool="Train"),
            Refusal("metadata.name", f"name 'Train' {NAME_RULE}"),
            id="a capital in the name",
        ),
        pytest.param(
            manifest({"labels": {"-a": "x"}}),
            Refusal("metadata.labels[-a]", f"key name '-a' {LABEL_RULE}"),
            id="a label's key",
        ),
        pytest.param(
            manifest({"labels": {"a": "no spaces"}}),
            Refusal("metadata.labels[a]", f"value 'no spaces' {LABEL_RULE}"),
            id="a label's value",
        ),
        pytest.param(
            manifest({"annotations": {"a b": "x"}}),
            Refusal("metadata.annotations[a b]", f"key name 'a b' {LABEL_RULE}"),
            id="an annotation's key",
        ),
        pytest.param(
            manifest(nodeAnnotations={"a": "x" * 262_144}),
            Refusal(
                "spec.nodeAnnotations",
                "annotations take 262145 bytes, more than the 262144 allowed"
                " (Kubernetes API validation)",
            ),
            id="annotations that are too large",
        ),
        pytest.param(
            manifest(nodeLabels={"a": "v" * 64}),
            Refusal(
                "spec.nodeLabels[a]",
                f"value has 64 characters, more than the 63 allowed; it {LABEL_RULE}",
            ),
            id="a node label's value that is too long",
        ),
        pytest.param(
            manifest(nodeLabels={"node.coreweave.cloud/class": "gpu"}),
            Refusal("spec.nodeLabels[node.coreweave.cloud/class]", RESERVED, "Forbidden"),
            id="a node label in a reserved namespace",
        ),
        pytest.param(
            manifest(nodeLabels={"coreweave.com/x": ""}),
            Refusal("spec.nodeLabels[coreweave.com/x]", RESERVED, "Forbidden"),
            id="a node label in the other reserved namespace",
        ),
        pytest.param(
            manifest(nodeTaints=[taint("fine"), taint("a/b/c")]),
            Refusal(
                "spec.nodeTaints[1].key",
                "key has more than one '/'; it must be a name, optionally after a DNS prefix and"
                " one '/' (Kubernetes: Labels and Selectors)",
            ),
            id="a taint's key",
        ),
        pytest.param(
            manifest(nodeTaints=[taint("a", value="not this")]),
            Refusal("spec.nodeTaints[0].value", f"value 'not this' {LABEL_RULE}"),
            id="a taint's value",
        ),
        pytest.param(
            manifest(nodeTaints=[taint("a", "Never")]),
            Refusal(
                "spec.nodeTaints[0].effect",
                "effect 'Never' must be one of NoSchedule, PreferNoSchedule, NoExecute"
                " (Kubernetes: Taints and Tolerations)",
            ),
            id="a taint's effect",
        ),
        pytest.param(
            manifest(pool="a" * 64),
            Refusal(
                "metadata.name",
                "name has 64 characters, more than the 63 allowed; it becomes the value of a label"
                " of each Node (Kubernetes: Labels and Selectors)",
            ),
            id="a name that is too long for a label",
        ),
        pytest.param(
            manifest(instanceType="a b"),
            Refusal("spec.instanceType", f"value 'a b' {LABEL_RULE}"),
            id="an instance type that is no label value",
        ),
        pytest.param(
            manifest(nodeTaints=[taint("a"), taint("is_gpu", "PreferNoSchedule", "x")]),
            Refusal(
                "spec.nodeTaints[1]",
                "remove is_gpu:PreferNoSchedule: the control plane sets it where it belongs",
                "Forbidden",
            ),
            id="a taint that is managed",
        ),
        pytest.param(
            manifest(nodeTaints=[taint("node.kubernetes.io/unschedulable")]),
            Refusal(
                "spec.nodeTaints[0]",
                "remove node.kubernetes.io/unschedulable:NoSchedule:"
                " the control plane sets it where it belongs",
                "Forbidden",
            ),
            id="a cordon",
        ),
        pytest.param(
            manifest(nodeTaints=[taint("node.kubernetes.io/not-ready", "PreferNoSchedule")]),
            Refusal(
                "spec.nodeTaints[0]",
                f"remove node.kubernetes.io/not-ready:PreferNoSchedule: {SET_BY_KUBERNETES}",
                "Forbidden",
            ),
            id="a taint that Kubernetes sets",
        ),
        pytest.param(
            manifest(nodeLabels={"a": "", "kubernetes.io/os": "linux"}),
            Refusal(
                "spec.nodeLabels[kubernetes.io/os]",
                f"remove kubernetes.io/os: {SET_BY_KUBERNETES}",
                "Forbidden",
            ),
            id="a label that Kubernetes sets",
        ),
        pytest.param(
            manifest(nodeAnnotations={"node.alpha.kubernetes.io/ttl": "0"}),
            Refusal(
                "spec.nodeAnnotations[node.alpha.kubernetes.io/ttl]",
                f"remove node.alpha.kubernetes.io/ttl: {SET_BY_KUBERNETES}",
                "Forbidden",
            ),
            id="an annotation that Kubernetes sets",
        ),
        *(
            pytest.param(
                manifest(nodeAnnotations={key: "mine"}),
                Refusal(
                    f"spec.nodeAnnotations[{key}]",
                    f"remove {key}: {SET_BY_CONTROL_PLANE}",
                    "Forbidden",
                ),
                id=f"the annotation {key}",
            )
            for key in (
                "compute.coreweave.com/managed",
                "node.coreweave.cloud/cordonReason",
                "sunk.coreweave.com/lock",
            )
        ),
        pytest.param(
            manifest(nodeAnnotations={"a": "x" * (NODE_ANNOTATIONS_LIMIT_BYTES - 1)}),
            Refusal(
                "spec.nodeAnnotations",
                "annotations take 196609 bytes with each key twice, more than the 196608 allowed"
                " of a Node, where one more annotation names them",
            ),
            id="annotations that leave no room on a Node",
        ),
        pytest.param(
            manifest(nodeTaints=[taint("a", value="x"), taint("b"), taint("a", value="y")]),
            Refusal("spec.nodeTaints[2]", "repeats the key a with the effect NoSchedule"),
            id="a taint twice",
        ),
    ],
)
def test_a_malformed_manifest_is_refused_by_field_and_message(
    malformed_manifest: ApplyNodePool, refusal: Refusal
) -> None:
    assert find_fault(malformed_manifest) == refusal


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("topology.kubernetes.io/zone", SET_BY_CONTROL_PLANE),
        ("topology.kubernetes.io/rack", SET_BY_CONTROL_PLANE),
        ("node.kubernetes.io/instance-type", SET_BY_CONTROL_PLANE),
        ("kubernetes.io/arch", SET_BY_KUBERNETES),
        ("kubernetes.io/hostname", SET_BY_KUBERNETES),
        ("kubernetes.io/role", GRANTS_RIGHTS),
        ("node-role.kubernetes.io/control-plane", GRANTS_RIGHTS),
        ("node-restriction.kubernetes.io/trusted", GRANTS_RIGHTS),
        ("example.node-restriction.kubernetes.io/trusted", GRANTS_RIGHTS),
    ],
)
def test_no_label_can_be_asked_for_that_others_own_or_that_grants_rights(
    key: str, reason: str
) -> None:
    refused = find_fault(manifest(nodeLabels={"team": "a", key: "x"}))

    assert refused == Refusal(f"spec.nodeLabels[{key}]", f"remove {key}: {reason}", "Forbidden")


def test_labels_that_only_look_like_those_of_others_have_no_fault() -> None:
    labels = {
        "topology.example.com/zone": "a",
        "my-node-role.kubernetes.io/a": "",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
    }

    assert find_fault(manifest(nodeLabels=labels)) is None


@pytest.mark.parametrize("effect", TAINT_EFFECTS)
@pytest.mark.parametrize("key", TAINTS)
def test_no_taint_can_be_asked_for_that_kubernetes_sets_back(key: str, effect: str) -> None:
    refused = find_fault(manifest(nodeTaints=[taint(key, effect)]))

    assert refused is not None
    assert (refused.field, refused.reason) == ("spec.nodeTaints[0]", "Forbidden")
    assert f"{key}:{effect}" in refused.message


def test_annotations_that_leave_room_for_their_names_on_a_node_have_no_fault() -> None:
    annotations = {"a": "x" * (NODE_ANNOTATIONS_LIMIT_BYTES - 2)}

    assert find_fault(manifest(nodeAnnotations=annotations)) is None


def test_the_message_about_reserved_namespaces_is_the_documented_one() -> None:
    assert RESERVED == "Namespaces `*.coreweave.cloud` or `*.coreweave.com` are not allowed."


# The target between its bounds.


@pytest.mark.parametrize(
    ("fields", "refusals"),
    [
        pytest.param({"autoscaling": True, "minNodes": 1, "maxNodes": 3}, [], id="within"),
        pytest.param({"autoscaling": False, "maxNodes": 0}, [], id="bounds without autoscaling"),
        pytest.param({"minNodes": 9, "maxNodes": 1}, [], id="wrong bounds without autoscaling"),
        pytest.param(
            {"autoscaling": True, "maxNodes": 3},
            [Refusal("spec.minNodes", "is required while autoscaling is true")],
            id="no lower bound",
        ),
        pytest.param(
            {"autoscaling": True, "minNodes": 1},
            [Refusal("spec.maxNodes", "is required while autoscaling is true")],
            id="no upper bound",
        ),
        pytest.param(
            {"autoscaling": True, "minNodes": 4, "maxNodes": 9},
            [
                Refusal(
                    "spec.targetNodes",
                    "must lie between minNodes 4 and maxNodes 9 while autoscaling is true",
                )
            ],
            id="below",
        ),
        pytest.param(
            {"autoscaling": True, "minNodes": 0, "maxNodes": 2},
            [
                Refusal(
                    "spec.targetNodes",
                    "must lie between minNodes 0 and maxNodes 2 while autoscaling is true",
                )
            ],
            id="above",
        ),
        pytest.param(
            {"autoscaling": True, "minNodes": 3, "maxNodes": 2},
            [
                Refusal(
                    "spec.targetNodes",
                    "must lie between minNodes 3 and maxNodes 2 while autoscaling is true",
                )
            ],
            id="bounds that cross",
        ),
        pytest.param(
            {"instanceType": RACK, "autoscaling": True, "minNodes": 0, "maxNodes": 18},
            [Refusal("spec.autoscaling", f"must be false: {RACK} comes in whole racks")],
            id="a rack type",
        ),
    ],
)
def test_autoscaling_needs_a_target_between_bounds_and_no_racks(
    fields: dict[str, object], refusals: list[Refusal]
) -> None:
    assert list(list_size_faults(spec(**fields))) == refusals


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_a_target_is_refused_exactly_when_it_lies_outside_its_bounds(
    least: int, target: int, most: int
) -> None:
    bounded = spec(target, autoscaling=True, minNodes=least, maxNodes=most)

    assert (list(list_size_faults(bounded)) == []) is (least <= target <= most)


# What may never change.


@pytest.mark.parametrize(
    ("after", "refusal"),
    [
        pytest.param(spec(9, nodeLabels={"a": "b"}), None, id="target and labels"),
        pytest.param(spec(computeClass="default"), None, id="the default class by its name"),
        pytest.param(
            spec(instanceType="gd-8xa100-i128"),
            Refusal("spec.instanceType", "InstanceType cannot be changed"),
            id="the instance type",
        ),
        pytest.param(
            spec(computeClass="Spot"),
            Refusal("spec.computeClass", "ComputeClass cannot be changed"),
            id="the compute class",
        ),
    ],
)
def test_instance_type_and_compute_class_never_change(
    after: NodePoolSpec, refusal: Refusal | None
) -> None:
    assert immutable(spec(), after) == refusal


# The verdict on what is stored.


def test_a_configuration_that_can_be_delivered_is_valid() -> None:
    result = verdict(spec(region=ZONE), ZONE)

    assert result == VALID
    assert result == Verdict(Validated.VALID, "NodePool configuration is valid.")


@pytest.mark.parametrize(
    ("undeliverable", "zone", "fault", "message"),
    [
        pytest.param(
            spec(instanceType="none-such"),
            ZONE,
            "InstanceType",
            "instance type none-such is not a known instance type",
            id="an unknown type",
        ),
        pytest.param(
            spec(instanceType="none-such", region="RNO2A"),
            ZONE,
            "InstanceType",
            "instance type none-such is not a known instance type",
            id="an unknown type before another region",
        ),
        pytest.param(
            spec(region="RNO2A"),
            ZONE,
            "Zone",
            f"region RNO2A is not the cluster's zone {ZONE}",
            id="another region",
        ),
        pytest.param(
            spec(),
            "US-EAST-13A",
            "Zone",
            f"instance type {H100} is not offered in zone US-EAST-13A",
            id="a type that is not offered there",
        ),
        pytest.param(
            spec(instanceType=SUPERCHIP, computeClass="spot"),
            SUPERCHIP_ZONE,
            "Settings",
            f"computeClass spot is not offered for the Superchip instance type {SUPERCHIP}",
            id="a Superchip as spot",
        ),
        pytest.param(
            spec(computeClass="spot"),
            OTHER_ZONE,
            "Settings",
            f"computeClass spot is not offered in {OTHER_ZONE}, which is no General Access zone;"
            f" {H100} is offered as spot in {SPOT_ZONES}",
            id="spot without General Access",
        ),
        pytest.param(
            spec(instanceType="gd-8xh100"),
            ZONE,
            "InstanceType",
            "instance type gd-8xh100 is not a known instance type; did you mean gd-8xh100ib-i128?",
            id="a type that is nearly right",
        ),
        pytest.param(
            spec(19, instanceType=RACK),
            RACK_ZONE,
            "Settings",
            f"targetNodes 19 is not a multiple of 18, the Nodes of one rack of {RACK}",
            id="more than a rack and less than two",
        ),
        pytest.param(
            spec(
                affinity=affine({"key": "topology.kubernetes.io/zone", "operator": "NotIn"}),
            ),
            ZONE,
            "Settings",
            "nodeSelectorTerms[0].matchExpressions[0], key 'topology.kubernetes.io/zone':"
            " operator NotIn needs at least one value",
            id="a malformed affinity",
        ),
        pytest.param(
            spec(
                affinity=affine(
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["X"]}
                ),
            ),
            ZONE,
            "Settings",
            "nodeSelectorTerms[0]: key 'topology.kubernetes.io/zone' is always 'US-EAST-02A',"
            " never In [X]",
            id="an affinity that no machine here can satisfy",
        ),
    ],
)
def test_a_configuration_that_can_never_be_delivered_is_invalid(
    undeliverable: NodePoolSpec, zone: str, fault: str, message: str
) -> None:
    result = verdict(undeliverable, zone)

    assert (result.reason, result.fault, result.message) == (Validated.INVALID, fault, message)


@pytest.mark.parametrize("target", [0, 18, 36])
def test_whole_racks_are_valid(target: int) -> None:
    assert verdict(spec(target, instanceType=RACK), RACK_ZONE) == VALID


def test_an_affinity_that_some_machine_may_satisfy_is_valid() -> None:
    leafgroup = spec(
        affinity=affine(
            {"key": "ib.coreweave.cloud/leafgroup", "operator": "In", "values": ["l-7"]},
            {"key": "node.kubernetes.io/type", "operator": "In", "values": [H100]},
        )
    )

    assert isinstance(leafgroup.affinity, Affinity)
    assert verdict(leafgroup, ZONE) == VALID


@given(st.sampled_from(sorted(INSTANCE_TYPES)), st.sampled_from(sorted(ZONES)))
def test_a_plain_spec_is_valid_exactly_where_its_type_is_offered(
    instance_type: str, zone: str
) -> None:
    result = verdict(spec(0, instanceType=instance_type), zone)

    assert (result == VALID) is is_offered(instance_type, zone)


LABEL = "node.coreweave.cloud/rack"


def affinity_of(terms: int, expressions: int, values: int) -> Affinity:
    """An affinity of so many terms with so many expressions each, and so many values in all."""
    term = [(LABEL, "Exists", ())] * (expressions - 1)
    listed = [[*term, (LABEL, "In", ("r1",))] for _ in range(terms)]
    listed[-1][-1] = (LABEL, "In", tuple(f"r{number}" for number in range(values - terms + 1)))
    return affinity_to(*listed)


def test_an_affinity_may_be_as_large_as_the_bounds_say() -> None:
    largest = affinity_of(TERMS_MAX, EXPRESSIONS_MAX, VALUES_MAX)

    assert find_fault(manifest(affinity=largest)) is None


@pytest.mark.parametrize(
    ("affinity", "refusal"),
    [
        pytest.param(
            affinity_of(TERMS_MAX + 1, 1, TERMS_MAX + 1),
            Refusal(TERMS_FIELD, f"has {TERMS_MAX + 1} terms, more than the {TERMS_MAX} allowed"),
            id="terms",
        ),
        pytest.param(
            affinity_of(2, EXPRESSIONS_MAX + 1, 2),
            Refusal(
                f"{TERMS_FIELD}[0].matchExpressions",
                f"has {EXPRESSIONS_MAX + 1} expressions, more than the {EXPRESSIONS_MAX} allowed",
            ),
            id="expressions",
        ),
        pytest.param(
            affinity_of(2, 2, VALUES_MAX + 1),
            Refusal(
                TERMS_FIELD, f"has {VALUES_MAX + 1} values, more than the {VALUES_MAX} allowed"
            ),
            id="values",
        ),
    ],
)
def test_an_affinity_beyond_its_bounds_is_refused_with_field_and_limit(
    affinity: Affinity, refusal: Refusal
) -> None:
    assert find_fault(manifest(affinity=affinity)) == refusal
