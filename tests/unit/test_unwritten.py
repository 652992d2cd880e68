"""What of the read model is to be written, and for how long that has waited."""

from nodepool.nats.objects.stored_objects import ObjectKey
from nodepool.nats.objects.unwritten import Lag, Unwritten

ONE: ObjectKey = ("nodepools", "one")
OTHER: ObjectKey = ("nodepools", "other")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def known(clock: Clock) -> Unwritten:
    """Nothing is to be written, and that is known."""
    unwritten = Unwritten(clock)
    unwritten.note_recovery()
    return unwritten


def test_nothing_that_is_to_be_written_is_no_lag() -> None:
    assert known(Clock()).lag() == Lag(0, 0)


def test_the_lag_is_that_of_the_oldest_change() -> None:
    clock = Clock()
    unwritten = known(clock)

    unwritten.add(ONE)
    clock.now += 2
    unwritten.add(OTHER)
    unwritten.add(ONE)
    clock.now += 1

    assert unwritten.lag() == Lag(3, 2)
    assert unwritten.first(1) == [ONE]


def test_an_object_that_is_being_written_waits_until_that_has_ended() -> None:
    clock = Clock()
    unwritten = known(clock)
    unwritten.add(ONE)
    unwritten.begin(ONE)
    clock.now += 5

    assert (unwritten.lag(), len(unwritten)) == (Lag(5, 1), 0)
    unwritten.clear_in_flight()
    assert unwritten.lag() == Lag(0, 0)


def test_an_object_that_was_not_stored_has_waited_since_it_first_changed() -> None:
    clock = Clock()
    unwritten = known(clock)
    unwritten.add(ONE)
    unwritten.begin(ONE)
    clock.now += 5

    unwritten.again(ONE)
    unwritten.clear_in_flight()

    assert unwritten.lag() == Lag(5, 1)


def test_while_it_is_unknown_what_is_stored_anything_may_wait() -> None:
    # given that something may have been lost
    clock = Clock()
    unwritten = known(clock)
    unwritten.note_loss()
    clock.now += 7
    unwritten.note_loss()

    # then the lag grows, though nothing is known to wait
    assert (unwritten.lag(), unwritten.is_known) == (Lag(7, 0), False)

    # and what is found to differ has waited since then
    since = unwritten.note_recovery()
    unwritten.add(ONE, since)
    assert (unwritten.lag(), unwritten.is_known) == (Lag(7, 1), True)
