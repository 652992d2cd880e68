"""Merge patches as RFC 7396 defines them, and JSON patches as RFC 6902 does."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.cli.patches import PatchError, apply_json_patch
from nodepool.contract.merging import apply_merge_patch, conflicts, merge_patch

SCALARS = st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", ""])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_rfc_7396_are_merged_as_it_says(
    document: object, patch: object, result: object
) -> None:
    assert apply_merge_patch(document, patch) == result


@given(before=OBJECTS, after=OBJECTS)
def test_the_merge_patch_between_two_objects_makes_one_of_the_other(
    before: Mapping[str, object], after: Mapping[str, object]
) -> None:
    assert apply_merge_patch(before, merge_patch(before, after)) == after
    assert merge_patch(after, after) == {}


@given(before=OBJECTS, one=OBJECTS, other=OBJECTS)
def test_patches_without_conflicts_give_the_same_in_either_order(
    before: Mapping[str, object], one: Mapping[str, object], other: Mapping[str, object]
) -> None:
    first, second = merge_patch(before, one), merge_patch(before, other)

    if not conflicts(first, second):
        assert apply_merge_patch(apply_merge_patch(before, first), second) == apply_merge_patch(
            apply_merge_patch(before, second), first
        )


def test_a_conflict_names_the_fields_that_both_change() -> None:
    one = {"spec": {"targetNodes": 6, "region": "a"}, "metadata": {"labels": {"x": "1"}}}
    other = {"spec": {"targetNodes": 7, "region": "a"}, "metadata": {"labels": {"y": "1"}}}

    assert conflicts(one, other) == ["spec.targetNodes"]


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux"}],
            {"baz": "qux", "foo": "bar"},
        ),
        (
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "q"}],
            {"foo": ["bar", "q", "baz"]},
        ),
        (
            {"foo": ["bar"]},
            [{"op": "add", "path": "/foo/-", "value": ["a"]}],
            {"foo": ["bar", ["a"]]},
        ),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["a", "q", "b"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["a", "b"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": 1}, "qux": {}},
            [{"op": "move", "from": "/foo/bar", "path": "/qux/t"}],
            {"foo": {}, "qux": {"t": 1}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "qux"}], {"baz": "qux"}),
        ({"foo": [1]}, [{"op": "copy", "from": "/foo", "path": "/bar"}], {"foo": [1], "bar": [1]}),
        (
            {"/": 9, "~1": 10},
            [{"op": "test", "path": "/~01", "value": 10}, {"op": "remove", "path": "/~1"}],
            {"~1": 10},
        ),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {}}], {}),
    ],
)
def test_the_examples_of_rfc_6902_are_applied_as_it_says(
    document: object, operations: object, result: object
) -> None:
    assert apply_json_patch(document, operations) == result


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ({"op": "add"}, "a JSON patch is a list of operations"),
        ([3], "operation 0 is not a map"),
        ([{"op": "spam", "path": "/a"}], "operation 0: Unknown operation 'spam'"),
        ([{"op": "add", "path": "a", "value": 1}], "operation 0: path must be a JSON pointer"),
        (
            [{"op": "add", "path": "/x"}],
            "operation 0: The operation does not contain a 'value' member",
        ),
        ([{"op": "add", "path": "/x/y", "value": 1}], "operation 0: the object has no /x/y"),
        (
            [{"op": "add", "path": "/list/3", "value": 1}],
            "operation 0: can't insert outside of list",
        ),
        ([{"op": "remove", "path": "/list/01"}], "operation 0: the object has no /list/01"),
        ([{"op": "remove", "path": ""}], "operation 0: can't remove the whole document"),
        ([{"op": "replace", "path": "/x", "value": 1}], "operation 0: the object has no /x"),
        ([{"op": "test", "path": "/a", "value": True}], "operation 0: the value at /a is not that"),
        ([{"op": "move", "from": "/m", "path": "/m/n"}], "operation 0: Cannot move values into"),
    ],
)
def test_an_operation_that_does_not_fit_is_named(operations: object, message: str) -> None:
    document = {"a": 1, "list": [1, 2], "m": {"n": 1}}

    with pytest.raises(PatchError) as caught:
        apply_json_patch(document, operations)

    assert str(caught.value).startswith(message)
    assert document == {"a": 1, "list": [1, 2], "m": {"n": 1}}
