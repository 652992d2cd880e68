"""Editing a NodePool: what the form changes, and what two users change at once."""

from collections.abc import Mapping
from typing import Any

import pytest

from console.view.editing import Stretch, change_document, compare_texts, fill_form, merge
from console.view.forms import Form
from nodepool.contract.documents import field
from support.constants import H100

Fields = Mapping[str, Any]


def manifest(version: int = 5, **spec: object) -> dict[str, object]:
    """A NodePool as it is stored."""
    metadata = {"name": "train", "resourceVersion": str(version), "generation": version}
    return {"metadata": metadata, "spec": {"instanceType": H100, "targetNodes": 4, **spec}}


def typed(document: Mapping[str, object], **changes: str) -> dict[str, object]:
    """A NodePool after these fields of its form were changed."""
    return dict(change_document(document, Form({**fill_form(document).values, **changes})))


def test_a_form_that_is_sent_as_it_was_changes_nothing() -> None:
    rich = manifest(
        autoscaling=True,
        minNodes=1,
        maxNodes=9,
        nodeLabels={"team.example/name": "red"},
        nodeTaints=[
            {"key": "a", "value": "b", "effect": "NoSchedule"},
            {"key": "c", "effect": "X"},
        ],
        affinity={"kept": True},
        lifecycle={"scaleDownStrategy": "PreferIdle", "disableUnhealthyNodeEviction": False},
    )

    assert typed(rich) == rich
    assert fill_form(rich).value("labels") == "team.example/name=red"
    assert fill_form(rich).value("taints") == "a=b:NoSchedule, c:X"


@pytest.mark.parametrize(
    ("before", "change", "expected"),
    [
        ({}, {"target": "7"}, {"targetNodes": 7}),
        ({}, {"target": "x"}, {"targetNodes": "x"}),
        ({"targetNodes": None, "targetRacks": 2}, {"target": "3"}, {"targetRacks": 3}),
        ({}, {"how": "auto", "least": "1", "most": "5"}, {"autoscaling": True, "minNodes": 1}),
        ({"minNodes": 1}, {"least": ""}, {"minNodes": None}),
        (
            {"nodeLabels": {"a": "1", "b": "2"}},
            {"labels": "b=3, c=4"},
            {"nodeLabels": {"b": "3", "c": "4"}},
        ),
        ({"nodeLabels": {"a": "1"}}, {"labels": ""}, {"nodeLabels": None}),
        ({}, {"taints": "a:NoSchedule"}, {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}]}),
        (
            {"lifecycle": {"disableUnhealthyNodeEviction": False}},
            {"shrink": "PreferIdle"},
            {
                "lifecycle": {
                    "disableUnhealthyNodeEviction": False,
                    "scaleDownStrategy": "PreferIdle",
                }
            },
        ),
    ],
)
def test_a_field_of_the_form_changes_its_field_of_the_spec(
    before: Fields, change: Mapping[str, str], expected: Fields
) -> None:
    after = typed(manifest(affinity={"kept": True}, **before), **change)

    assert {name: field(after, "spec", name) for name in expected} == expected
    assert field(after, "spec", "affinity") == {"kept": True}


def test_what_another_user_changed_is_kept_beside_what_was_typed() -> None:
    opened = manifest()

    found = merge(opened, manifest(6, targetNodes=9), manifest(autoscaling=True))

    assert found.document == manifest(6, targetNodes=9, autoscaling=True)
    assert not found.has_clash
    assert [(each.path, each.opened, each.now) for each in found.others] == [
        ("spec.targetNodes", "4", "9")
    ]


def test_a_field_that_both_changed_is_as_it_was_typed_and_says_so() -> None:
    found = merge(manifest(), manifest(6, targetNodes=9), manifest(targetNodes=7))

    assert found.document == manifest(6, targetNodes=7)
    assert found.has_clash
    assert (found.others[0].now, found.others[0].typed) == ("9", "7")


@pytest.mark.parametrize(
    ("newest", "own", "clashes"),
    [
        ({"targetNodes": 7}, {"targetNodes": 7}, [False]),
        ({"nodeLabels": {"a": "2"}}, {"nodeLabels": {"a": "1", "b": "1"}}, [False]),
        ({"nodeLabels": {"a": "2"}}, {"nodeLabels": {"a": "3"}}, [True]),
        ({"nodeLabels": None}, {"nodeLabels": {"a": "3"}}, [True]),
        ({}, {"targetNodes": 7}, []),
    ],
)
def test_two_changes_clash_where_they_differ(
    newest: Fields, own: Fields, clashes: list[bool]
) -> None:
    labels: Fields = {"nodeLabels": {"a": "1"}}
    opened = manifest(**labels)

    found = merge(opened, manifest(6, **{**labels, **newest}), manifest(**{**labels, **own}))

    assert [each.clashes for each in found.others] == clashes


def test_a_manifest_is_compared_line_by_line_with_what_goes_before_what_comes() -> None:
    assert compare_texts("a\nb\nc", "a\nB\nc\nd") == [
        Stretch("", ("a",)),
        Stretch("del", ("b",)),
        Stretch("add", ("B",)),
        Stretch("", ("c",)),
        Stretch("add", ("d",)),
    ]
