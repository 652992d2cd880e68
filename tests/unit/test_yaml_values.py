"""Values of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema), as manifests are written."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodepool.cli.output import as_yaml
from nodepool.client.manifests import ManifestError, parse_manifests, parse_yaml

POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: a
spec:
  instanceType: t
  autoscaling: {autoscaling}
  targetNodes: {target}
"""


@pytest.mark.parametrize("target", ["1:30", "1_000", "0b11", "1e1", "10.0", "~", "2001-01-01"])
def test_a_target_that_is_no_number_of_yaml_1_2_is_refused(target: str) -> None:
    with pytest.raises(ManifestError, match=r"spec\.targetNodes: "):
        parse_manifests(POOL.format(autoscaling="false", target=target), "pools.yaml")


@pytest.mark.parametrize("target", ["010", "00", "-08", "+007"])
def test_a_number_that_two_programs_read_differently_is_refused(target: str) -> None:
    with pytest.raises(ManifestError, match=r"pools.yaml line 8: .* begins with 0, which some"):
        parse_manifests(POOL.format(autoscaling="false", target=target), "pools.yaml")


@pytest.mark.parametrize(("target", "number"), [("0o10", 8), ("0x10", 16), ("+3", 3), ("-0", 0)])
def test_the_other_spellings_of_a_number_are_read(target: str, number: int) -> None:
    (manifest,) = parse_manifests(POOL.format(autoscaling="false", target=target), "pools.yaml")

    assert manifest.command.spec.target == number


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "n", "Yes", "ON"])
def test_a_word_is_neither_true_nor_false(word: str) -> None:
    with pytest.raises(ManifestError, match=r"spec\.autoscaling: "):
        parse_manifests(POOL.format(autoscaling=word, target=1), "pools.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "!!int 1:30",
        "!!bool yes",
        "!!null x",
        "!!binary aGk=",
        "!!timestamp 2001-01-01",
        "!!set {}",
    ],
)
def test_a_tag_gives_no_value_a_type_that_its_text_does_not_have(text: str) -> None:
    with pytest.raises(ManifestError):
        parse_yaml(text, "pools.yaml")


INT = re.compile(r"[-+]?(0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.I)


def kind_of(text: str) -> type:
    """Return the type of a plain scalar, by the table of the YAML specification."""
    if text in ("", "~", "null", "Null", "NULL"):
        return type(None)
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return bool
    if INT.fullmatch(text):
        return int
    return float if FLOAT.fullmatch(text) else str


PIECES = st.sampled_from(["0", "1", "8", "10", "o", "x", "b", "e", ".", "-", "+", ":", "_", "f"])
WORDS = ["yes", "no", "on", "off", "null", "~", "true", "False", "inf", "nan", "Y", "2001-02-03"]
SCALARS = st.lists(PIECES, min_size=1, max_size=5).map("".join) | st.sampled_from(WORDS)
LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")


@given(SCALARS.filter(lambda text: text != "-" and ":" not in (text[0], text[-1])))
def test_a_plain_scalar_has_the_type_of_the_core_schema(text: str) -> None:
    if LEADING_ZERO.fullmatch(text):
        with pytest.raises(ManifestError):
            parse_yaml(f"a: {text}", "pools.yaml")
    else:
        value = parse_yaml(f"a: {text}", "pools.yaml")
        assert isinstance(value, dict)
        assert type(value["a"]) is kind_of(text)


CHARACTERS = st.characters(exclude_categories=["Cs"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | SCALARS
    | st.text(CHARACTERS, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(SCALARS, inner, max_size=3)
        | st.dictionaries(st.text(CHARACTERS, max_size=5), inner)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_what_is_printed_as_yaml_is_read_as_the_same_value(value: object) -> None:
    document = {"spec": value}

    assert parse_yaml(as_yaml(document), "pools.yaml") == document


@given(SCALARS)
def test_a_text_that_is_printed_is_a_text_to_readers_of_yaml_1_1_too(text: str) -> None:
    assert yaml.safe_load(as_yaml({"spec": text})) == {"spec": text}


@given(st.dictionaries(st.text("abc", max_size=3), st.integers() | st.text("01:x", max_size=5)))
def test_json_is_yaml(value: dict[str, object]) -> None:
    assert parse_yaml(json.dumps(value), "pools.yaml") == value
