"""Whether a replica leads or stands by, and when a follower may take over; pure.

Leadership only saves work: of two replicas that commit the same inputs, the log refuses one. So
there is no lease and no election. A replica that commits leads; one that reads a commit of another
replica follows, and processes only what the leader has left unprocessed for a while.
"""

STANDBY_S = 0.5
"""How long a follower leaves an input to the leader."""
STALE_S = 5.0
"""A replica whose commit was refused reads the other replica's commit long before this."""


class Leadership:
    """Leading or following. Every `now` is in seconds of the same monotonic clock.

    A new replica leads until it meets another one.
    """

    def __init__(self) -> None:
        self._leading = True
        self._leader_heard_at = 0.0
        self._oldest_input_at = 0.0
        self._conflicted_at = 0.0

    @property
    def leading(self) -> bool:
        """Whether this replica processes inputs as soon as they arrive."""
        return self._leading

    def input_arrived(self, now: float) -> None:
        """An input has arrived while no other was open."""
        self._oldest_input_at = now

    def followed(self, now: float, *, caught_up: bool) -> None:
        """A commit of another replica was read.

        While this replica is not `caught_up`, that is history and says nothing about the present.
        """
        self._leader_heard_at = now
        if caught_up:
            self._leading = False

    def conflicted(self, now: float) -> None:
        """A commit of this replica was refused, because another replica committed first."""
        self._leading = False
        self._leader_heard_at = self._conflicted_at = now

    def committed(self) -> bool:
        """A commit of this replica is stored, so it leads; True where it did not lead before."""
        took_over, self._leading = not self._leading, True
        return took_over

    def may_commit(self, now: float) -> bool:
        """Whether to process what is open: the leader at once, a follower after STANDBY_S."""
        return self._leading or now >= self.takeover_at

    @property
    def takeover_at(self) -> float:
        """When a follower may process what is open now."""
        return max(self._leader_heard_at, self._oldest_input_at) + STANDBY_S

    def leader_silent_s(self, now: float) -> float:
        """For how many seconds no other replica was heard."""
        return now - self._leader_heard_at

    def is_stale(self, now: float) -> bool:
        """Whether the commit that caused a conflict should have been read long ago."""
        return now - self._conflicted_at > STALE_S
