"""What `explain` and `api-resources` print about objects."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from immutables import Map

from aggregator.documents import document
from aggregator.objects import Autoscaled, NodePoolObject
from contracts.samples import FULL, KIND, NOON, ZONE
from nodepool.cli.app import run
from nodepool.cli.explained import format_explanation
from nodepool.cli.schema import nodepool
from nodepool.contract.conditions import Capacity, Quota, Validated, change_condition
from nodepool.contract.keys import pool_key
from nodepool.contract.reference import Field
from nodepool.explanation.facts import Check, Facts, Limit
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.sentence import explain


def paths(field: Field) -> set[str]:
    """The path of each field inside a field."""
    return {
        f"{each.name}{inner}"
        for each in field.fields
        for inner in ("", *(f".{path}" for path in paths(each)))
    }


def written(value: object) -> set[str]:
    """The path of each value in a document; a list has the paths of what it holds."""
    if isinstance(value, Mapping):
        return {
            f"{key}{inner}"
            for key, each in value.items()
            for inner in ("", *(f".{path}" for path in written(each)))
        }
    if isinstance(value, list):
        return {path for each in value for path in written(each)}
    return set()


def test_every_field_of_a_full_nodepool_is_documented() -> None:
    reasons = (Validated.VALID, Quota.UNDER, Capacity.PARTIAL)
    conditions = {
        type(each).__name__: change_condition(None, each, "fine", 1, NOON) for each in reasons
    }
    waiting = NodePoolObject(
        key=pool_key("acme", "prod", "train"),
        uid="u",
        zone="Z",
        created=NOON,
        generation=1,
        labels={},
        annotations={},
        spec=FULL,
        version=1,
        granted=3,
        conditions=Map(conditions),
        autoscaled=Autoscaled("from 1 to 3", NOON, 1),
        spot_awaited=1,
        queue_position=1,
        machines_needed=1,
        missing=1,
        specified=NOON,
        progressed=NOON,
        observed=1,
        profiles=Map({"gd-8xh100ib-i128/before": 1}),
    )
    shown = [document(each) for each in (waiting, replace(waiting, deleting=NOON))]
    free = ("spec.nodeLabels.", "spec.nodeAnnotations.", "status.otherNodeProfiles.")

    known = paths(nodepool())
    unknown = {path for each in shown for path in written(each) - known}

    assert {path for path in unknown if not path.startswith(free)} == set()
    assert {"status.observedGeneration", "status.machinesNeeded"} <= written(shown[0])


def test_every_field_of_a_spec_has_a_text() -> None:
    spec = next(field for field in nodepool().fields if field.name == "spec")

    assert [field.name for field in spec.fields if not (field.text or field.about)] == []


def test_a_field_is_explained_with_its_limits_and_its_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["explain", "nodepool.spec.lifecycle.scaleDownStrategy"]) == 0
    assert capsys.readouterr().out == (
        "GROUP:      compute.coreweave.com\n"
        "KIND:       NodePool\n"
        "VERSION:    v1alpha1\n"
        "\n"
        "FIELD: scaleDownStrategy <string>\n"
        "\n"
        "DESCRIPTION:\n"
        "    Which Nodes may be removed when the NodePool shrinks. One of IdleOnly,\n"
        "    PreferIdle. Default: IdleOnly.\n"
    )


def test_the_fields_of_fields_are_listed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "np.spec.schedulingPriority", "--recursive"]) == 0
    assert capsys.readouterr().out.endswith("FIELDS:\n  value\t<integer>\n")


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("np.spec.targetnodes", 1, "spec has no field 'targetnodes'; did you mean targetNodes"),
        ("np.kind.x", 1, "kind has no field 'x'; its fields: none"),
        ("pods", 2, "TYPE: 'pods' is not supported here; use nodepools"),
    ],
)
def test_what_is_no_field_is_an_error_that_names_the_nearest_one(
    path: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", path]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("np train --recursive", "--recursive: is for fields, not for a NAME"),
        ("np/train np", "NAME: 'np' is not TYPE/NAME; write every name that way"),
        ("np/train np/batch", "NAME: explain one NodePool at a time"),
        ("node g1", "TYPE: 'node' is not supported here; use nodepools (np)"),
        ("np.spec train", "TYPE: 'np.spec' is not a type of object"),
        ("np -o json", "--output: json is for a NAME, not for fields"),
        ("np train -o wide", "--output: wide is not printed here"),
        ("np train batch", "unexpected extra argument"),
    ],
)
def test_what_is_neither_a_field_nor_a_nodepool_is_a_usage_error(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", *line.split()]) == 2
    assert message in capsys.readouterr().err


def test_an_explanation_is_a_sentence_and_its_ranked_causes_with_their_proofs() -> None:
    booting = tuple(NodeFacts(f"g{n}", 60 + n, NOON, registered=False) for n in (1, 2))
    over = Check(
        "Quota", "False", "Over", f"targetNodes 9 exceeds quota 4\x1b for {KIND}", NOON, 40
    )
    facts = Facts(
        "train",
        KIND,
        9,
        zone=ZONE,
        in_progress=2,
        granted=2,
        checks={"Quota": over},
        nodes=booting,
        limit=Limit(4, 2, 41),
    )

    shown = format_explanation(explain(facts).document(), NOON + timedelta(minutes=5))

    assert shown.splitlines() == [
        f"NodePool train wants 9 Nodes of {KIND} in {ZONE} and has 0; Quota is Over, False since "
        f"2026-01-01T12:00:00Z: targetNodes 9 exceeds quota 4^[ for {KIND}; raise the quota of "
        f"{KIND} in {ZONE} to 9.",
        "",
        "1. Quota is Over, False since 2026-01-01T12:00:00Z (5m)",
        f"   targetNodes 9 exceeds quota 4^[ for {KIND}",
        "   the quota is 5 Nodes too small",
        "   train reserves 2",
        f"   helps: raise the quota of {KIND} in {ZONE} to 9",
        "   helps: scale train to 4, which fits",
        f"   log:   40 (condition Quota), 41 (quota {ZONE}.{KIND})",
        "",
        "2. 2 are in progress, since 2026-01-01T12:00:00Z (5m)",
        "   g1, g2 have not joined yet",
        "   helps: wait until they join the cluster",
        "   log:   61 (node g1), 62 (node g2)",
    ]


def test_the_types_of_objects_are_listed_with_their_short_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["api-resources"]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()

    assert header.split() == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert first.split() == [
        "nodepools",
        "np",
        "compute.coreweave.com/v1alpha1",
        "false",
        "NodePool",
    ]
