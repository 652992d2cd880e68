"""Which `Wake` to fire for a service, and when; pure.

A service names the time at which it is due. A `Wake` is fired by this machine's clock, but the log
stores it with the log's own time. If this machine's clock is ahead, the `Wake` comes too early,
finds nothing due, and is fired again after the time by which it was early.
"""

from datetime import datetime

from nodepool.engine.wakes import FRESH
from nodepool.host.leadership import STANDBY_S

RETRY_S, RETRY_MAX_S = 0.5, 10.0
"""The first and the longest pause after a failed `Wake`; each failure in a row doubles the pause.

RETRY_MAX_S is also the longest time that a follower leaves a `Wake` to the leader.
"""
FRESH_S = FRESH.total_seconds()
PASSED_OVER_MAX = 5
"""How many `Wake`s in a row a replica passes over at most, so that even a slow machine works."""
DOUBLINGS_MAX = 30
"""How often a pause is doubled at most, so that no number grows without bound."""


class Timers:
    """When to fire the `Wake` of one replica.

    In every method, `read_to` is the position up to which the replica has read the log, `wall` the
    current time in UTC, and `now` is in seconds of a monotonic clock, which no correction of the
    time of day moves.
    """

    def __init__(self) -> None:
        self._fired: tuple[datetime, int] | None = None
        self._position = 0
        self._not_before = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._fault = ""
        self._in_vain = 0
        self._standby_until = 0.0
        self._fired_as_leader = False
        self._fired_at = 0.0
        self._passed_over = 0

    @property
    def fault(self) -> str:
        """Why the last `Wake` could not be stored, or failed; empty if a `Wake` did its work."""
        return self._fault

    def seconds_left(
        self, due: datetime, read_to: int, *, leading: bool, wall: datetime, now: float
    ) -> float:
        """Return the seconds until the `Wake` for `due` must be fired; zero or less if it is time.

        It is not fired again before more is read. A follower leaves it to the leader first.
        """
        if self._fired == (due, read_to):
            return STANDBY_S
        seconds = (due - wall).total_seconds()
        if seconds > 0:
            # The work that was due before is done, so the leader works.
            self._in_vain = 0
        if not leading:
            seconds = max(seconds + STANDBY_S, self._standby_until - now)
        return max(seconds, self._not_before - now, self._retry_at - now)

    def in_flight(self, read_to: int) -> bool:
        """Return whether the last `Wake` fired is not read yet; until then no other is fired."""
        return read_to < self._position

    def note_fired_wake(
        self, due: datetime, read_to: int, position: int, sent_at: float, *, leading: bool = False
    ) -> None:
        """Note that a `Wake` for `due` was stored at `position`, not sent before `sent_at`.

        `leading` is as for `seconds_left`.
        """
        self._fired, self._position, self._fired_at = (due, read_to), position, sent_at
        self._fired_as_leader = leading

    def is_old(self, position: int, now: float) -> bool:
        """Return whether to pass over a `Wake`, because too much time may have passed since.

        That is known only of the `Wake` that this replica has fired last, and only by its own
        monotonic clock. After some in a row, the next `Wake` is followed however old it is.
        """
        is_fresh = position == self._position and now - self._fired_at <= FRESH_S
        if is_fresh or self._passed_over >= PASSED_OVER_MAX:
            self._passed_over = 0
            return False
        self._passed_over += 1
        return True

    def wake_read(self, position: int, time: datetime, now: float) -> None:
        """Note a `Wake` that the log stored at `time`, and by how much it came too early.

        A follower leaves the next `Wake` to the leader, for longer after each `Wake` that it has
        fired itself: a leader at work that fires no `Wake` is waiting, because a `Wake` has failed.
        What a replica has fired while it led says nothing of another leader.
        """
        if position == self._position and not self._fired_as_leader:
            self._in_vain = min(self._in_vain + 1, DOUBLINGS_MAX)
        self._standby_until = now + min(STANDBY_S * 2**self._in_vain, RETRY_MAX_S)
        if self._fired is None:
            return
        early_s = (self._fired[0] - time).total_seconds()
        if early_s > 0:
            self._not_before = now + early_s

    def note_failure(self, now: float, fault: str) -> None:
        """Delay the next `Wake`: the last one was not stored, or failed and left something due.

        `fault` says which, and why, as one line.
        """
        self._retry_at = now + min(RETRY_S * 2**self._failures, RETRY_MAX_S)
        self._failures = min(self._failures + 1, DOUBLINGS_MAX)
        self._fault = fault

    def note_success(self) -> None:
        """Note that a `Wake` did its work, or that there is no reason any more to wait."""
        self._failures, self._retry_at, self._fault = 0, 0.0, ""
