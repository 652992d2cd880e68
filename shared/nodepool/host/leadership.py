"""Whether a replica leads or stands by, and when a follower may take over; pure.

Leadership only saves work: if two replicas commit the same inputs, the log refuses one commit. So
there is no lease and no election. The replica that committed last leads. A replica that reads a
commit of another replica follows, and processes only inputs that the leader has left unprocessed
for a while. A replica that has read no commit of another replica is a candidate: it processes
inputs at once, but does not lead yet.

If the leader is gone, a follower takes over at the next input. Without an input, it becomes a
candidate once the leader has no consumer left, see `nodepool.host.succession`.
"""

from enum import Enum, auto

STANDBY_S = 0.5
"""How long a follower leaves an input to the leader."""
STALE_S = 5.0
"""How long a replica whose commit met a conflict waits to read the commit of the other replica.

It normally reads that commit long before.
"""
CLAIM_S = 5.0
"""How long a candidate without inputs waits for another replica's commit before it commits."""
UNKNOWN_S = 60.0
"""How long a leader is silent until it counts as gone, if its consumer cannot be checked."""


class _Role(Enum):
    CANDIDATE = auto()
    LEADER = auto()
    FOLLOWER = auto()


class Leadership:
    """Leading, following, or neither. Every `now` is in seconds of the same monotonic clock.

    A new replica is a candidate. At most one of several replicas leads, except for the moments
    until the others have read its commit.
    """

    def __init__(self) -> None:
        self._role = _Role.CANDIDATE
        self._has_followed = False
        self._leader = ""
        self._leader_heard_at = 0.0
        self._oldest_input_at = 0.0
        self._conflicted_at = 0.0

    @property
    def leading(self) -> bool:
        """Return whether the last commit that this replica knows of is its own."""
        return self._role is _Role.LEADER

    @property
    def following(self) -> bool:
        """Return whether this replica leaves inputs to another replica for a while."""
        return self._role is _Role.FOLLOWER

    @property
    def leader(self) -> str:
        """The mark of the replica that committed last, if it is another replica; else empty."""
        return self._leader

    def caught_up(self, now: float) -> None:
        """Time the leader's silence from now, as the log is read to where it ended at the start."""
        self._leader_heard_at = now

    def input_arrived(self, now: float) -> None:
        """Note that an input has arrived while no other was open."""
        self._oldest_input_at = now

    def note_foreign_commit(self, now: float, *, caught_up: bool, leader: str = "") -> None:
        """Note a commit that was read and is not known to be from this replica.

        leader: the mark of the replica that has made the commit; empty if unknown.

        While this replica is not `caught_up`, the commit is history and says nothing about the
        present.
        """
        self._leader, self._leader_heard_at = leader, now
        self._has_followed = self._has_followed or caught_up
        self._role = _Role.FOLLOWER if caught_up else _Role.CANDIDATE

    def note_conflict(self, now: float) -> None:
        """Follow, because a commit of this replica was refused: another replica committed first."""
        self._role = _Role.FOLLOWER
        self._has_followed = True
        self._leader_heard_at = self._conflicted_at = now

    def note_leader_gone(self, leader: str) -> None:
        """Note that this leader is gone, so that it is open who leads."""
        if self.following and leader == self._leader:
            self._role = _Role.CANDIDATE

    def note_own_commit(self) -> bool:
        """Lead, as a commit of this replica is stored; return whether it has followed before."""
        took_over, self._has_followed = self._has_followed, False
        self._role = _Role.LEADER
        return took_over

    def claim_is_due(self, now: float) -> bool:
        """Return whether a caught-up idle replica must commit, so that it is known to lead.

        Without that commit, replicas that start on a quiet log would not know which of them leads.
        """
        return self._role is _Role.CANDIDATE and now - self._leader_heard_at >= CLAIM_S

    def may_commit(self, now: float) -> bool:
        """Return whether to process open inputs: a follower after STANDBY_S, any other at once."""
        return not self.following or now >= self.takeover_at

    @property
    def takeover_at(self) -> float:
        """Return when a follower may process the inputs that are open now."""
        return max(self._leader_heard_at, self._oldest_input_at) + STANDBY_S

    def leader_silent_s(self, now: float) -> float:
        """Return for how many seconds no other replica was heard."""
        return now - self._leader_heard_at

    def is_stale(self, now: float) -> bool:
        """Return whether the commit that caused a conflict should have been read long ago."""
        return now - self._conflicted_at > STALE_S
