"""Limit how often something happens: a burst at once, and then a rate."""


class Bucket:
    """A token bucket, full at first.

    per_second: how many tokens it gets per second.
    burst: the most tokens that it can hold.
    now: seconds of any monotonic clock, here and in each call.
    """

    __slots__ = ("_at", "_burst", "_held", "_per_second")

    def __init__(self, per_second: float, burst: float, now: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._held, self._at = burst, now

    def take(self, now: float, tokens: float = 1.0) -> float:
        """Take tokens; return 0, or in how many seconds there are enough, and take none."""
        self._fill(now)
        if self._held < tokens:
            return (tokens - self._held) / self._per_second
        self._held -= tokens
        return 0.0

    def owe(self, now: float, tokens: float = 1.0) -> float:
        """Take tokens that need not be there; return in how many seconds the debt is paid."""
        self._fill(now)
        self._held -= tokens
        return max(0.0, -self._held / self._per_second)

    def _fill(self, now: float) -> None:
        self._held = min(self._burst, self._held + (now - self._at) * self._per_second)
        self._at = now
