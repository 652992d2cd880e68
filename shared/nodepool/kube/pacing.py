"""Limits how often something is repeated; pure."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Pauses(Generic[K]):
    """The pauses of at most `most` keys, of which the oldest are forgotten first.

    Every `now` is in seconds of one monotonic clock.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pauses: dict[K, tuple[float, str]] = {}

    def ends_at(self, key: K) -> float:
        """Return when the pause of a key ends; minus infinity for a key without a pause."""
        return self._pauses.get(key, (float("-inf"), ""))[0]

    def cause(self, key: K) -> str:
        """Return why the last pause of a key began; empty if no cause was given."""
        return self._pauses.get(key, (0.0, ""))[1]

    def is_over(self, key: K, now: float) -> bool:
        """Return whether a key may be repeated."""
        return now >= self.ends_at(key)

    def begin(self, key: K, until: float, cause: str = "") -> None:
        """Begin the pause of a key, in place of the pause that it has."""
        self._pauses.pop(key, None)
        self._pauses[key] = until, cause
        if len(self._pauses) > self._most:
            del self._pauses[next(iter(self._pauses))]

    def forget(self, key: K) -> None:
        """Forget a key that is gone."""
        self._pauses.pop(key, None)
