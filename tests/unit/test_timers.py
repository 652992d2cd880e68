"""When to fire a `Wake`, by a clock that may be ahead of the log's, or behind it."""

from datetime import UTC, datetime, timedelta

from nodepool.host.leadership import STANDBY_S
from nodepool.host.timers import FRESH_S, PASSED_OVER_MAX, RETRY_MAX_S, RETRY_S, Timers

DUE = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = DUE + timedelta(seconds=10)
READ_TO = 7
NOW = 1_000.0


def left(
    timers: Timers,
    due: datetime = DUE,
    *,
    read_to: int = READ_TO,
    leading: bool = True,
    after: float = 0.0,
) -> float:
    """The seconds left, so many seconds after `DUE` by this machine's clocks."""
    wall = DUE + timedelta(seconds=after)
    return timers.seconds_left(due, read_to, leading=leading, wall=wall, now=NOW + after)


def test_a_leader_fires_at_the_due_time() -> None:
    # given a service that is due
    timers = Timers()

    # when its time has not come, has just come, has passed
    # then the seconds left say so
    assert left(timers, after=-3) == 3
    assert left(timers, after=0) == 0
    assert left(timers, after=2) == -2


def test_a_follower_leaves_it_to_the_leader_first() -> None:
    # given a service that is due
    timers = Timers()

    # when a follower looks at the time
    # then it waits longer than a leader does
    assert left(timers, after=-3, leading=False) == 3 + STANDBY_S
    assert left(timers, after=STANDBY_S, leading=False) == 0


def test_no_other_wake_is_fired_while_one_is_in_flight() -> None:
    # given a replica that has fired nothing yet
    timers = Timers()
    assert not timers.in_flight(READ_TO)

    # when a wake is stored further on in the log
    timers.note_fired_wake(DUE, READ_TO, position=READ_TO + 5, sent_at=NOW)

    # then it is in flight until the replica has read to there
    assert timers.in_flight(READ_TO + 4)
    assert not timers.in_flight(READ_TO + 5)


def test_a_wake_is_not_fired_again_before_more_is_read() -> None:
    # given a wake that was fired, with the id that another wake for it would have
    timers = Timers()
    timers.note_fired_wake(DUE, READ_TO, position=READ_TO, sent_at=NOW)

    # when nothing was read since
    # then it is not time, and it is again once something is read
    assert left(timers, after=1) == STANDBY_S
    assert left(timers, after=1, read_to=READ_TO + 1) == -1


def test_another_due_time_is_fired_though_nothing_was_read() -> None:
    # given a wake that was fired
    timers = Timers()
    timers.note_fired_wake(DUE, READ_TO, position=READ_TO, sent_at=NOW)

    # when the service is due at another time
    # then that one counts
    assert left(timers, LATER, after=10) == 0


def test_a_wake_that_came_too_early_is_fired_again_after_as_long_as_it_was_early() -> None:
    # given a machine whose clock is four seconds ahead of the log's
    timers = Timers()
    timers.note_fired_wake(DUE, READ_TO, position=READ_TO + 1, sent_at=NOW)

    # when it reads that the log has stored its wake four seconds too early
    timers.wake_read(READ_TO + 1, DUE - timedelta(seconds=4), NOW)

    # then it waits for these four seconds
    assert left(timers, read_to=READ_TO + 1) == 4
    assert left(timers, read_to=READ_TO + 1, after=4) == 0


def test_a_wake_in_time_changes_nothing() -> None:
    # given a wake that was fired
    timers = Timers()
    timers.note_fired_wake(DUE, READ_TO, position=READ_TO + 1, sent_at=NOW)

    # when the log has stored it after the due time
    timers.wake_read(READ_TO + 1, DUE + timedelta(seconds=4), NOW)

    # then there is nothing to wait for
    assert left(timers, read_to=READ_TO + 1) == 0


def test_a_wake_that_another_replica_fired_changes_nothing() -> None:
    # given a replica that has fired nothing
    timers = Timers()

    # when it reads a wake, however early
    timers.wake_read(READ_TO, DUE - timedelta(hours=1), NOW)

    # then there is nothing to wait for
    assert left(timers) == 0


def test_a_follower_leaves_what_has_been_due_for_long_to_the_leader_first() -> None:
    # given a service that has been due for long, and still is after the wake of its leader
    timers = Timers()
    timers.wake_read(READ_TO, DUE, NOW + 100)

    # when a leader, and a follower, look at the time
    # then the follower waits a while
    assert left(timers, after=100) < 0
    assert left(timers, after=100, leading=False) == STANDBY_S
    assert left(timers, after=100 + STANDBY_S, leading=False) == 0


def test_a_follower_waits_longer_after_each_wake_that_it_has_fired_in_vain() -> None:
    # given a service that is due still after each wake, which its leader fires no more
    timers, pauses = Timers(), list[float]()

    # when a follower fires them
    for number in range(7):
        timers.note_fired_wake(DUE, READ_TO + number, READ_TO + number + 1, NOW)
        timers.wake_read(READ_TO + number + 1, DUE, NOW + 100)
        pauses.append(left(timers, read_to=READ_TO + number + 1, after=100, leading=False))

    # then its pauses grow, for the leader has failed and waits itself
    assert pauses == [1, 2, 4, 8, RETRY_MAX_S, RETRY_MAX_S, RETRY_MAX_S]

    # and a Wake of the leader that fails as well does not end that
    timers.wake_read(READ_TO + 10, DUE, NOW + 100)
    assert left(timers, after=100, leading=False) == RETRY_MAX_S

    # and the work of the leader, after which less is due, ends it
    assert left(timers, LATER) == 10
    timers.wake_read(READ_TO + 11, DUE, NOW + 100)
    assert left(timers, after=100, leading=False) == STANDBY_S


def test_a_wake_that_fails_again_and_again_is_fired_at_growing_intervals() -> None:
    # given a service that has been due for long
    timers, pauses = Timers(), list[float]()

    # when each of its wakes fails
    for _ in range(7):
        timers.note_failure(NOW + 100, "no such rack")
        pauses.append(left(timers, after=100))

    # then the pause before the next one doubles, up to the longest
    doubled = [RETRY_S * 2**number for number in range(5)]
    assert pauses == [*doubled, RETRY_MAX_S, RETRY_MAX_S]

    # and one that succeeds ends that
    assert timers.fault == "no such rack"
    timers.note_success()
    assert timers.fault == ""
    assert left(timers, after=100) < 0
    timers.note_failure(NOW + 100, "no such rack")
    assert left(timers, after=100) == RETRY_S


def test_a_wake_that_failed_delays_none_that_is_due_later() -> None:
    # given a wake that failed
    timers = Timers()
    timers.note_failure(NOW, "no such rack")

    # when the service is due later than its pause ends, then it is fired when it is due
    assert left(timers, LATER) == 10


def test_a_replica_that_has_led_waits_no_longer_for_the_next_leader() -> None:
    # given a replica that has fired many wakes while it led
    timers = Timers()
    for position in range(READ_TO, READ_TO + 10):
        timers.note_fired_wake(DUE, position, position + 1, NOW, leading=True)
        timers.wake_read(position + 1, DUE, NOW)

    # when another replica leads, and is frozen
    # then this one fires what is due as soon as any follower does
    assert left(timers, LATER, read_to=READ_TO + 20, after=10 + STANDBY_S, leading=False) == 0
    assert left(timers, DUE, read_to=READ_TO + 20, after=STANDBY_S, leading=False) == 0


def test_the_own_wake_is_followed_while_it_is_fresh() -> None:
    timers = Timers()
    timers.note_fired_wake(DUE, READ_TO, position=READ_TO + 1, sent_at=NOW)

    assert not timers.is_old(READ_TO + 1, NOW + FRESH_S)
    assert timers.is_old(READ_TO + 1, NOW + FRESH_S + 0.001)


def test_the_wake_of_another_replica_or_of_an_earlier_session_is_passed_over() -> None:
    assert Timers().is_old(READ_TO, NOW)


def test_a_machine_that_is_always_slow_follows_a_wake_in_the_end() -> None:
    timers = Timers()

    passed_over = [timers.is_old(READ_TO, NOW) for _ in range(PASSED_OVER_MAX + 2)]

    assert passed_over == [True] * PASSED_OVER_MAX + [False, True]
