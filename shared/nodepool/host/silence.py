"""For how long a part of a process has been silent; pure."""

STEP_MAX_S = 2.0
"""The most seconds that count between two looks: a process that was stopped could hear nothing."""


class Silence:
    """The seconds since one thread last heard from another thread, while itself running.

    In a process that is stopped or gets no CPU time, neither thread runs, so that such seconds do
    not count. `now` is in seconds of a monotonic clock.

    seconds: how long the silence has lasted.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked_at: float | None = None

    def end(self) -> None:
        """End the silence of the thread; that thread calls this method."""
        self.seconds = 0.0

    def look(self, now: float) -> float:
        """Return how long the silence has lasted at `now`; the listening thread calls this."""
        if self._looked_at is not None:
            self.seconds += min(max(now - self._looked_at, 0.0), STEP_MAX_S)
        self._looked_at = now
        return self.seconds
