from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.samples import Expression, affinity_to
from nodepool.contract.affinity import (
    TOPOLOGY_KEYS,
    Affinity,
    NodeAffinity,
    fault,
    machine_labels,
)
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.grammar import label_value, qualified_name
from nodepool.contract.satisfiable import satisfiable
from nodepool.placement.label_index import LabelIndex
from support.examples import tried

RACK = "node.coreweave.cloud/rack"
ARCH = "kubernetes.io/arch"


def matches(affinity: Affinity | None, labels: Mapping[str, str]) -> bool:
    """Whether the only machine that there is, with these labels, is accepted."""
    return LabelIndex(1, lambda key: [labels.get(key)]).find_accepted(affinity) == 1


KUBERNETES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["1", "2"]}]}
            ]
        }
    }
}


def test_the_kubernetes_shape_is_read_and_written_unchanged() -> None:
    affinity = Affinity.model_validate(KUBERNETES)

    assert affinity == affinity_to([(RACK, "In", ("1", "2"))])
    assert affinity.model_dump(mode="json") == KUBERNETES
    assert Affinity.model_validate_json(affinity.model_dump_json()) == affinity


def _with_selector(selector: object) -> object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def _with_term(term: object) -> object:
    return _with_selector({"nodeSelectorTerms": [term]})


@pytest.mark.parametrize(
    ("document", "text"),
    [
        pytest.param({"podAffinity": {}}, "podAffinity", id="affinity to pods"),
        pytest.param(
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "preferredDuringSchedulingIgnoredDuringExecution",
            id="preferences",
        ),
        pytest.param(_with_selector({}), "nodeSelectorTerms", id="no terms named"),
        pytest.param(_with_selector({"nodeSelectorTerms": []}), "at least 1", id="no terms"),
        pytest.param(_with_term({"matchFields": []}), "matchFields is not supported", id="fields"),
        pytest.param(
            _with_term({"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}),
            "valid string",
            id="number as a value",
        ),
        pytest.param(
            _with_term({"matchExpressions": [{"key": "a"}]}), "operator", id="no operator"
        ),
    ],
)
def test_another_shape_is_refused_with_its_field(document: object, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Affinity.model_validate(document)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        pytest.param((RACK, "in", ("1",)), "'in' is not one of In, NotIn", id="unknown operator"),
        pytest.param((RACK, "In", ()), "In needs at least one value", id="In of nothing"),
        pytest.param((RACK, "NotIn", ()), "NotIn needs at least one value", id="NotIn of nothing"),
        pytest.param((RACK, "Exists", ("1",)), "Exists takes no values", id="Exists with a value"),
        pytest.param((RACK, "DoesNotExist", ("",)), "takes no values", id="absent with a value"),
        pytest.param((RACK, "Gt", ()), "exactly one integer", id="Gt of nothing"),
        pytest.param((RACK, "Gt", ("1", "2")), "exactly one integer", id="Gt of two"),
        pytest.param((RACK, "Lt", ("1.5",)), "exactly one integer", id="Lt of a fraction"),
        pytest.param((RACK, "Lt", ("٣",)), "exactly one integer", id="Lt of another script"),
        pytest.param((RACK, "Lt", ("9" * 5000,)), "exactly one integer", id="Lt of a giant"),
        pytest.param((RACK, "Gt", (str(2**63),)), "exactly one integer", id="Gt over 64 bits"),
        pytest.param((RACK, "Gt", ("-1",)), "value '-1' must be", id="sign, never in a label"),
        pytest.param((RACK, "In", ("1", "a b")), "value 'a b' must be", id="bad value"),
        pytest.param((RACK, "NotIn", ("1\n",)), r"value '1\n' must be", id="newline in a value"),
        pytest.param(("a/b/c", "Exists", ()), "more than one '/'", id="bad key"),
        pytest.param(("", "Exists", ()), "key name is empty", id="empty key"),
    ],
)
def test_a_malformed_expression_is_named_with_its_place(expression: Expression, text: str) -> None:
    affinity = affinity_to([(RACK, "Exists", ())], [(ARCH, "In", ("arm64",)), expression])

    reason = fault(affinity)

    assert reason is not None
    assert reason.startswith(f"nodeSelectorTerms[1].matchExpressions[1], key {expression[0]!r}: ")
    assert text in reason


def test_an_empty_term_is_a_fault_and_matches_no_machine() -> None:
    affinity = affinity_to([])

    assert (
        fault(affinity) == "nodeSelectorTerms[0] has no matchExpressions, so it matches no machine"
    )
    assert not matches(affinity, {RACK: "1"})
    assert satisfiable(affinity, {}, {RACK}) is not None


def test_every_operator_has_a_well_formed_use() -> None:
    affinity = affinity_to(
        [(RACK, "In", ("1", "")), (RACK, "NotIn", ("2",)), (RACK, "Gt", ("007",))],
        [(RACK, "Lt", ("0",)), (RACK, "Exists", ()), (RACK, "DoesNotExist", ())],
    )

    assert fault(affinity) is None


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param(None, id="none"),
        pytest.param(Affinity(), id="no node affinity"),
        pytest.param(Affinity(node_affinity=NodeAffinity()), id="no hard rule"),
    ],
)
def test_no_affinity_is_well_formed_and_accepts_every_machine(affinity: Affinity | None) -> None:
    assert fault(affinity) is None
    assert matches(affinity, {})
    assert satisfiable(affinity, {}, ()) is None


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        pytest.param(("k", "In", ("a", "b")), "b", True, id="In, listed"),
        pytest.param(("k", "In", ("a",)), "b", False, id="In, not listed"),
        pytest.param(("k", "In", ("",)), None, False, id="In, absent is not empty"),
        pytest.param(("k", "NotIn", ("a",)), "b", True, id="NotIn, not listed"),
        pytest.param(("k", "NotIn", ("a",)), "a", False, id="NotIn, listed"),
        pytest.param(("k", "NotIn", ("a",)), None, True, id="NotIn, absent"),
        pytest.param(("k", "Exists", ()), "", True, id="Exists, empty"),
        pytest.param(("k", "Exists", ()), None, False, id="Exists, absent"),
        pytest.param(("k", "DoesNotExist", ()), "", False, id="DoesNotExist, empty"),
        pytest.param(("k", "DoesNotExist", ()), None, True, id="DoesNotExist, absent"),
        pytest.param(("k", "Gt", ("9",)), "10", True, id="Gt, as numbers"),
        pytest.param(("k", "Gt", ("9",)), "9", False, id="Gt, equal"),
        pytest.param(("k", "Lt", ("10",)), "9", True, id="Lt, as numbers"),
        pytest.param(("k", "Lt", ("10",)), "010", False, id="Lt, equal after zeros"),
        pytest.param(("k", "Lt", ("10",)), "r9", False, id="Lt, no number"),
        pytest.param(("k", "Lt", ("10",)), None, False, id="Lt, absent"),
        pytest.param(("k", "Gt", ("1",)), str(2**63), False, id="Gt, over 64 bits"),
        pytest.param(("k", "Is", ("a",)), "a", False, id="unknown operator"),
        pytest.param(("k", "NotIn", ()), "a", False, id="NotIn of nothing"),
    ],
)
def test_one_expression_is_compared_as_kubernetes_does(
    expression: Expression, value: str | None, expected: bool
) -> None:
    labels = {} if value is None else {"k": value}

    assert matches(affinity_to([expression]), labels) is expected


def test_terms_are_alternatives_and_expressions_add_up() -> None:
    affinity = affinity_to(
        [(RACK, "In", ("1",)), (ARCH, "In", ("arm64",))],
        [(RACK, "Gt", ("7",))],
    )

    accepted = [
        (rack, arch)
        for rack, arch in product(("1", "8"), ("arm64", "amd64"))
        if matches(affinity, {RACK: rack, ARCH: arch})
    ]

    assert accepted == [("1", "arm64"), ("8", "arm64"), ("8", "amd64")]


IMPOSSIBLE: list[object] = [
    pytest.param(
        [(ARCH, "In", ("arm64",))],
        "key 'kubernetes.io/arch' is always 'amd64', never In [arm64]",
        id="another fixed value",
    ),
    pytest.param([(ARCH, "DoesNotExist", ())], "is always 'amd64'", id="fixed, yet absent"),
    pytest.param([("team", "Exists", ())], "key 'team' is on no machine", id="key of no machine"),
    pytest.param([("team", "In", ("a",))], "key 'team' is on no machine", id="value of no machine"),
    pytest.param(
        [(RACK, "In", ("1",)), (RACK, "NotIn", ("1",))],
        f"key '{RACK}' cannot be In [1] and NotIn [1] with any value",
        id="in and not in",
    ),
    pytest.param([(RACK, "In", ("1",)), (RACK, "In", ("2",))], "cannot be", id="in both"),
    pytest.param([(RACK, "Exists", ()), (RACK, "DoesNotExist", ())], "cannot be", id="is and not"),
    pytest.param([(RACK, "Gt", ("5",)), (RACK, "Lt", ("3",))], "cannot be", id="crossed bounds"),
    pytest.param([(RACK, "Gt", ("5",)), (RACK, "Lt", ("6",))], "cannot be", id="nothing between"),
    pytest.param([(RACK, "Lt", ("0",))], "cannot be", id="below the least label"),
    pytest.param([(RACK, "Gt", (str(2**63 - 1),))], "cannot be", id="above the greatest"),
    pytest.param([(RACK, "In", ("a",)), (RACK, "Gt", ("1",))], "cannot be", id="word as number"),
    pytest.param([(RACK, "In", ("a b",))], "cannot be", id="no label value"),
    pytest.param([(RACK, "Near", ("1",))], "'Near'", id="unknown operator"),
]


@pytest.mark.parametrize(("term", "text"), IMPOSSIBLE)
def test_an_impossible_term_is_named_with_its_key(term: list[Expression], text: str) -> None:
    reason = satisfiable(affinity_to(term), {ARCH: "amd64"}, {RACK})

    assert reason is not None
    assert reason.startswith("nodeSelectorTerms[0]: key ")
    assert text in reason


@pytest.mark.parametrize(
    "term",
    [
        pytest.param([(ARCH, "In", ("amd64",))], id="the fixed value"),
        pytest.param([("team", "NotIn", ("a",))], id="not in, on no machine"),
        pytest.param([("team", "DoesNotExist", ())], id="absent, on no machine"),
        pytest.param([(RACK, "In", ("1", "2")), (RACK, "NotIn", ("1",))], id="one value left"),
        pytest.param([(RACK, "Gt", ("5",)), (RACK, "Lt", ("7",))], id="one number between"),
        pytest.param(
            [(RACK, "Gt", ("5",)), (RACK, "Lt", ("7",)), (RACK, "NotIn", ("6",))],
            id="that number with a leading zero",
        ),
        pytest.param([(RACK, "Exists", ()), (RACK, "NotIn", ("0", "1"))], id="any other value"),
    ],
)
def test_a_term_that_some_machine_could_meet_has_no_reason(term: list[Expression]) -> None:
    assert satisfiable(affinity_to(term), {ARCH: "amd64"}, {RACK}) is None


def test_one_possible_term_is_enough_and_otherwise_every_term_has_a_reason() -> None:
    impossible: list[Expression] = [("team", "Exists", ())]
    possible: list[Expression] = [(RACK, "Exists", ())]

    assert satisfiable(affinity_to(impossible, possible), {}, {RACK}) is None
    assert satisfiable(affinity_to(impossible, possible), {}, ()) == (
        "nodeSelectorTerms[0]: key 'team' is on no machine, so it is never Exists; "
        f"nodeSelectorTerms[1]: key '{RACK}' is on no machine, so it is never Exists"
    )


def test_of_many_terms_that_no_machine_meets_three_are_named_and_the_others_counted() -> None:
    impossible: list[Expression] = [("team", "Exists", ())]

    four = satisfiable(affinity_to(*[impossible] * 4), {}, ())
    five = satisfiable(affinity_to(*[impossible] * 5), {}, ())

    named = [
        f"nodeSelectorTerms[{index}]: key 'team' is on no machine, so it is never Exists"
        for index in range(3)
    ]
    assert four == "; ".join((*named, "1 more term that no machine can meet"))
    assert five == "; ".join((*named, "2 more terms that no machine can meet"))


def test_a_huge_contradiction_is_found_quickly_and_described_briefly() -> None:
    values = tuple(str(number) for number in range(50_000))

    reason = satisfiable(affinity_to([(RACK, "In", values), (RACK, "NotIn", values)]), {}, {RACK})

    assert reason is not None
    assert len(reason) < 300


# Few enough to try every machine, yet with a match for each possible term: no expression has a
# number with a leading zero, nor "zz".
WORDS = ("a", "b", "0", "1", "2", "3")
UNIVERSE = (None, *WORDS, "zz", *(f"{pad}{number}" for pad in ("0", "00") for number in range(6)))
FIXED = {"fixed": "1"}
OPEN = ("open", "free")
KEYS = (*OPEN, "fixed", "alien")

expressions = st.one_of(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from(WORDS), max_size=2).map(tuple),
    ),
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(("Gt", "Lt")),
        st.sampled_from((("0",), ("1",), ("2",), ("3",), ("a",))),
    ),
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(("Exists", "DoesNotExist", "Nonsense")),
        st.just(()),
    ),
)
affinities = st.lists(st.lists(expressions, max_size=5), min_size=1, max_size=3).map(
    lambda terms: affinity_to(*terms)
)


MACHINES: list[Mapping[str, str | None]] = [
    {**FIXED, **dict(zip(OPEN, values, strict=True))}
    for values in product(UNIVERSE, repeat=len(OPEN))
]
"""Every possible machine."""


@tried(500)
@given(affinities)
def test_unsatisfiable_means_exactly_that_no_possible_machine_matches(affinity: Affinity) -> None:
    index = LabelIndex(len(MACHINES), lambda key: [labels.get(key) for labels in MACHINES])

    some_machine_matches = index.find_accepted(affinity) != 0

    assert (satisfiable(affinity, FIXED, OPEN) is None) == some_machine_matches


@given(
    affinities,
    st.dictionaries(
        st.sampled_from(OPEN), st.from_regex(r"([A-Za-z0-9]{0,63})", fullmatch=True), max_size=2
    ),
)
def test_a_match_with_any_labels_proves_it_satisfiable(
    affinity: Affinity, labels: dict[str, str]
) -> None:
    if matches(affinity, FIXED | labels):
        assert satisfiable(affinity, FIXED, OPEN) is None


@given(st.sampled_from(WORDS) | st.none(), st.lists(st.sampled_from(WORDS), min_size=1).map(tuple))
def test_not_in_is_the_opposite_of_in(value: str | None, values: tuple[str, ...]) -> None:
    labels = {} if value is None else {"k": value}

    outcomes = [
        matches(affinity_to([("k", operator, values)]), labels) for operator in ("In", "NotIn")
    ]

    assert sorted(outcomes) == [False, True]


def test_a_machine_has_labels_for_its_type_its_zone_and_its_fabric() -> None:
    labels = machine_labels(INSTANCE_TYPES["gd-8xh100ib-i128"], ZONES["US-EAST-04A"])

    assert labels == {
        "node.kubernetes.io/instance-type": "gd-8xh100ib-i128",
        "node.kubernetes.io/type": "gd-8xh100ib-i128",
        "node.coreweave.cloud/class": "gpu",
        "topology.kubernetes.io/region": "US-EAST-04",
        "topology.kubernetes.io/zone": "US-EAST-04A",
        "kubernetes.io/arch": "amd64",
        "backend.coreweave.cloud/flavor": "infiniband",
    }


def test_a_machine_without_a_fabric_has_no_flavor() -> None:
    labels = machine_labels(INSTANCE_TYPES["cd-gp-i96-icelake"], ZONES["RNO2A"])

    assert labels["node.coreweave.cloud/class"] == "cpu"
    assert "backend.coreweave.cloud/flavor" not in labels


def test_machine_labels_and_topology_keys_follow_the_grammar_and_never_overlap() -> None:
    all_labels = [
        machine_labels(instance_type, ZONES[zone])
        for instance_type in INSTANCE_TYPES.values()
        for zone in instance_type.zones
    ]

    for labels in all_labels:
        assert all(type(value) is str for value in labels.values())
        assert all(label_value(value) is None for value in labels.values())
        assert all(qualified_name(key) is None for key in labels)
        assert not TOPOLOGY_KEYS & labels.keys()
    assert all(qualified_name(key) is None for key in TOPOLOGY_KEYS)
