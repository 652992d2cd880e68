from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.keys import PoolKey
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER
from preemption.node import Node

WARNED = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
TICK = timedelta(microseconds=1)
PREEMPTED = Node(PoolKey("acme/prod/cheap"), "US-EAST-04A", "g1", 1, pending_since=WARNED)


def test_the_drain_begins_after_two_minutes_and_the_node_is_gone_after_seven() -> None:
    window = DRAIN_AFTER, GONE_AFTER

    assert window == (timedelta(minutes=2), timedelta(minutes=7))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(timedelta(0), False, id="with the warning"),
        pytest.param(DRAIN_AFTER - TICK, False, id="just before 2:00"),
        pytest.param(DRAIN_AFTER, True, id="at 2:00"),
        pytest.param(GONE_AFTER - TICK, True, id="just before 7:00"),
        pytest.param(GONE_AFTER, False, id="at 7:00, when it goes"),
        pytest.param(timedelta(days=1), False, id="a day later"),
        pytest.param(-timedelta(minutes=3), False, id="by a clock that is behind"),
    ],
)
def test_a_drain_is_due_at_its_moment_and_never_before(after: timedelta, expected: bool) -> None:
    assert PREEMPTED.is_to_be_drained(WARNED + after) is expected


@given(st.timedeltas(min_value=timedelta(0), max_value=GONE_AFTER - TICK))
def test_a_drain_is_due_exactly_from_the_moment_that_is_named(after: timedelta) -> None:
    now = WARNED + after

    assert PREEMPTED.due is not None
    assert PREEMPTED.is_to_be_drained(now) is (now >= PREEMPTED.due)
