import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.suggest import did_you_mean


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gd-8xh100", "gd-8xh100ib-i128"),
        ("gd-8xh100ib-i182", "gd-8xh100ib-i128"),
        ("GD-8XH100IB-I128", "gd-8xh100ib-i128"),
        ("gd-9xh100", "gd-8xh100ib-i128"),
        ("h100", "gd-8xh100ib-i128"),
        ("gb200", "gb200-4x"),
    ],
)
def test_a_close_instance_type_is_suggested(written: str, meant: str) -> None:
    assert did_you_mean(written, INSTANCE_TYPES) == f"; did you mean {meant}?"


@pytest.mark.parametrize(
    ("written", "meant"), [("us-east-04a", "US-EAST-04A"), ("US-EAST-4A", "US-EAST-04A")]
)
def test_a_close_zone_is_suggested(written: str, meant: str) -> None:
    assert did_you_mean(written, ZONES) == f"; did you mean {meant}?"


@pytest.mark.parametrize("written", ["", "x", "banana", "x" * 10_000])
def test_nothing_is_suggested_for_what_is_like_no_name(written: str) -> None:
    assert did_you_mean(written, INSTANCE_TYPES) == ""


def test_nothing_is_suggested_where_nothing_is_known() -> None:
    assert did_you_mean("h100", ()) == ""


@given(st.text(), st.lists(st.text(max_size=64)))
def test_only_known_names_are_suggested(written: str, known: list[str]) -> None:
    assert did_you_mean(written, known) in {"", *(f"; did you mean {name}?" for name in known)}
