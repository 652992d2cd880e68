import click
import pytest

from nodepool.cli.selectors import has_fields, selects

LABELLED = {"metadata": {"name": "g1", "labels": {"pool": "a", "empty": "", "size": "12"}}}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", True),
        ("pool=a", True),
        ("pool==a,empty=", True),
        ("pool = a", True),
        ("pool=b", False),
        ("pool!=b", True),
        ("pool", True),
        ("!pool", False),
        ("!other,other!=x", True),
        ("pool=a,other", False),
        ("pool in (a,b)", True),
        ("pool in (b, c),empty", False),
        ("pool notin (a)", False),
        ("pool notin (b),empty in ()", True),
        ("other notin (a)", True),
        ("other in (a)", False),
        ("size>11,size<13", True),
        ("size>12", False),
        ("pool>1", False),
        ("other<1", False),
    ],
)
def test_selectors_choose_by_labels_as_in_kubectl(selector: str, chosen: bool) -> None:
    assert selects(selector, LABELLED) is chosen


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "a in (b", "=a", "!a=b", "a,,b", "a b"])
def test_a_text_that_is_no_label_selector_is_a_usage_error(selector: str) -> None:
    with pytest.raises(click.UsageError, match="is not a label selector; write KEY=VALUE"):
        selects(selector, LABELLED)


OBJECT = {
    "metadata": {"name": "g1"},
    "spec": {"on": True, "targetNodes": 3, "lifecycle": {"scaleDownStrategy": "IdleOnly"}},
}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", True),
        ("metadata.name=g1", True),
        ("metadata.name==g1,spec.targetNodes=3", True),
        ("metadata.name!=g1", False),
        ("spec.on=true", True),
        ("spec.on!=false", True),
        ("spec.lifecycle.scaleDownStrategy=IdleOnly", True),
        ("status.phase=", True),
        ("status.phase!=x", True),
    ],
)
def test_field_selectors_choose_by_any_field(selector: str, chosen: bool) -> None:
    assert has_fields(selector, OBJECT) is chosen


@pytest.mark.parametrize("selector", ["metadata.name", "=a", "a,b", "a>1"])
def test_a_text_that_is_no_field_selector_is_a_usage_error(selector: str) -> None:
    with pytest.raises(click.UsageError, match=r"is not a field selector; write metadata\.name="):
        has_fields(selector, OBJECT)
