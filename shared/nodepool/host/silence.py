"""For how long a part of a process has been silent; pure."""

STEP_MAX_S = 2.0
"""The most seconds that count between two looks: a process that was stopped has heard nothing."""


class Silence:
    """The seconds since one thread has heard of another thread, while it was at work itself.

    A process that is stopped, or that gets no time on its processor, has neither thread at work,
    so that such seconds do not count. `now` is in seconds of a monotonic clock.

    seconds: how long it has lasted.
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
