from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER
from preemption.timetable import Stage, next_moment, stage

WARNED = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
TICK = timedelta(microseconds=1)

elapsed = st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=1))


def test_the_drain_begins_after_two_minutes_and_the_node_is_gone_after_seven() -> None:
    window = DRAIN_AFTER, GONE_AFTER

    assert window == (timedelta(minutes=2), timedelta(minutes=7))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(timedelta(0), Stage.PENDING, id="with the warning"),
        pytest.param(DRAIN_AFTER - TICK, Stage.PENDING, id="just before 2:00"),
        pytest.param(DRAIN_AFTER, Stage.IN_PROGRESS, id="at 2:00"),
        pytest.param(GONE_AFTER - TICK, Stage.IN_PROGRESS, id="just before 7:00"),
        pytest.param(GONE_AFTER, Stage.OVER, id="at 7:00"),
        pytest.param(timedelta(days=1), Stage.OVER, id="a day later"),
        pytest.param(-timedelta(minutes=3), Stage.PENDING, id="by a clock that is behind"),
    ],
)
def test_a_stage_is_due_at_its_moment_and_never_before(after: timedelta, expected: Stage) -> None:
    assert stage(WARNED, WARNED + after) is expected


def test_each_stage_names_the_moment_of_the_next() -> None:
    moments = [next_moment(WARNED, reached) for reached in Stage]

    assert moments == [WARNED + DRAIN_AFTER, WARNED + GONE_AFTER, None]


@given(elapsed)
def test_a_stage_is_due_exactly_from_the_moment_that_the_one_before_names(
    after: timedelta,
) -> None:
    now = WARNED + after

    for reached in (Stage.PENDING, Stage.IN_PROGRESS):
        moment = next_moment(WARNED, reached)

        assert moment is not None
        assert (stage(WARNED, now) > reached) is (now >= moment)


@given(elapsed, elapsed)
def test_a_preemption_never_goes_back(first: timedelta, second: timedelta) -> None:
    earlier, later = sorted((first, second))

    assert stage(WARNED, WARNED + earlier) <= stage(WARNED, WARNED + later)
