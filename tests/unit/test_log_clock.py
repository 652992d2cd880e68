"""The time of the log, as the entries that were read tell it."""

from datetime import UTC, datetime, timedelta

from nodepool.host.log_clock import LogClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_the_time_goes_on_from_the_newest_entry() -> None:
    clock = LogClock()

    clock.note(NOON, 100.0)

    assert clock.now(103.0) == NOON + 3 * SECOND


def test_an_entry_that_was_read_late_does_not_set_the_clock_back() -> None:
    clock = LogClock()
    clock.note(NOON, 100.0)

    clock.note(NOON + SECOND, 110.0)

    assert clock.now(110.0) == NOON + 10 * SECOND


def test_an_entry_that_was_read_sooner_sets_the_clock_forward() -> None:
    clock = LogClock()
    clock.note(NOON, 100.0)

    clock.note(NOON + 5 * SECOND, 101.0)

    assert clock.now(102.0) == NOON + 6 * SECOND


def test_before_the_first_entry_it_is_as_early_as_can_be() -> None:
    assert LogClock().now(1_000.0) < NOON
