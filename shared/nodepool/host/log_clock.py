"""The time of the log, for actions that must not happen after a moment of the log."""

from datetime import UTC, datetime, timedelta


class LogClock:
    """Tells the time of the server by the newest entry read; clocks of this machine may be wrong.

    The time is behind by as long as that entry took to arrive. Every `at` is in seconds of the
    same monotonic clock.
    """

    def __init__(self) -> None:
        self._newest = datetime.min.replace(tzinfo=UTC)
        self._read_at = 0.0

    def note(self, newest: datetime, at: float) -> None:
        """Note that an entry was read that the server has stored at this time."""
        if newest > self.now(at):
            self._newest, self._read_at = newest, at

    def now(self, at: float) -> datetime:
        """Return the time of the log; the earliest there is before an entry is read."""
        return self._newest + timedelta(seconds=max(0.0, at - self._read_at))
