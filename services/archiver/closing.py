"""When a segment is complete; pure.

A segment is complete when it has 64 MB, when it is ten minutes old, and before a message of another
day. That alone would leave the last messages before a quiet time out of the archive for up to ten
minutes, so a segment is also complete once no message has come for five seconds: a quiet cell is in
its archive after less than ten. A message every six seconds would then make 14,400 segments a day,
each as slow to read as a large one. So segments that are closed in quiet are rationed: sixty at any
time, and one more a minute. A cell that is neither quiet nor busy is a minute behind.

A service stores what it says together with the commit record behind it. A segment that is full
waits for that record, so that an archive does not end inside a commit, and a log that is restored
from it ends where the archive does. After five quiet seconds there is nothing to wait for.
"""

from dataclasses import dataclass
from typing import Final

RATION: Final = 60
"""How many segments may be closed in quiet in a row."""
FULL: Final = 2
"""A segment of so many times its size waits for nothing: others may say what services do not."""
RATION_S: Final = 60.0
"""After this time, in seconds, one more may be."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment is complete.

    bytes: the size of its messages, before compression.
    age_s: the seconds since its first message was read.
    quiet_s: the seconds since the last message was read.
    """

    bytes: int = 64 << 20
    age_s: float = 600
    quiet_s: float = 5


@dataclass(frozen=True, slots=True)
class Filling:
    """A segment that is not complete.

    bytes: as in Limits; 0 while it is empty.
    first_at, last_at: when its first and its last message were read, on a monotonic clock: the
      clock of the log may be another one than that of the archiver.
    """

    bytes: int = 0
    first_at: float = 0.0
    last_at: float = 0.0

    def add(self, size: int, now: float) -> "Filling":
        """Return the segment with one more message."""
        return Filling(self.bytes + size, self.first_at if self.bytes else now, now)


@dataclass(frozen=True, slots=True)
class Ration:
    """How many segments may still be closed in quiet: `left`, as it was at the time `at`."""

    left: float = RATION
    at: float = 0.0

    def take(self, now: float) -> "Ration | None":
        """Return the ration without one segment; None if nothing is left."""
        left = min(self.left + (now - self.at) / RATION_S, RATION)
        return Ration(left - 1, now) if left >= 1 else None


def is_full(filling: Filling, limits: Limits, now: float, *, in_commit: bool = False) -> bool:
    """Return whether a segment is complete, however many messages follow.

    in_commit: whether its last message may be followed by others of the same commit.
    """
    if in_commit and filling.bytes < FULL * limits.bytes:
        return False
    aged = filling.bytes > 0 and now - filling.first_at >= limits.age_s
    return filling.bytes >= limits.bytes or aged


def is_quiet(filling: Filling, limits: Limits, now: float) -> bool:
    """Return whether a segment with messages has waited long enough for another message."""
    return filling.bytes > 0 and now - filling.last_at >= limits.quiet_s
