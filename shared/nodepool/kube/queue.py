"""A queue of keys to compare: each key is in it once, and has its own back-off; pure."""

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from nodepool.state.back_off import pause_s

LEAST_S = 0.1
MOST_S = 30.0
"""The pause after the first failure of a key, and the longest; each further failure doubles it."""

K = TypeVar("K", bound=Hashable)


class KeyQueue(Generic[K]):
    """Keys in the order of arrival; every `now` is in seconds of one monotonic clock.

    Urgent keys come before all others: a NodePool does not wait behind a thousand Nodes.

    A key that is added while it waits stays in the queue once. A key that is added while a worker
    has it is handed out again afterwards, never to two workers at a time.
    """

    def __init__(self, is_urgent: Callable[[K], bool] = lambda _: False) -> None:
        self._is_urgent = is_urgent
        self._urgent: dict[K, None] = {}
        self._ready: dict[K, None] = {}
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._due: dict[K, float] = {}
        self._delayed: list[tuple[float, int, K]] = []
        self._number = 0
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._urgent) + len(self._ready)

    @property
    def working(self) -> int:
        """Return how many keys are with a worker now."""
        return len(self._working)

    def add(self, key: K) -> None:
        """Add a key to compare as soon as a worker is free, whatever the key waited for."""
        if key in self._working:
            self._again.add(key)
            return
        self._due.pop(key, None)
        self._waiting(key)[key] = None

    def _waiting(self, key: K) -> dict[K, None]:
        return self._urgent if self._is_urgent(key) else self._ready

    def add_at(self, key: K, due: float) -> None:
        """Add a key to compare at a moment, or earlier if the key is added meanwhile."""
        if key in self._waiting(key) or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        self._number += 1
        heapq.heappush(self._delayed, (due, self._number, key))

    def take(self, now: float) -> K | None:
        """Return the next key to work on until `done`; None if no key is ready."""
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            if self._due.get(key) == due:
                self.add(key)
                self._due.pop(key, None)
        ready = self._urgent or self._ready
        if not ready:
            return None
        key = next(iter(ready))
        del ready[key]
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """End the work on a key."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._waiting(key)[key] = None

    def retry_later(self, key: K, now: float, draw: float, *, least_s: float = 0.0) -> float:
        """End the work on a key, add the key again after a pause, and return the pause in seconds.

        draw: from 0 to 1, so that keys which failed together are not tried again together.
        least_s: the shortest pause, as the API server asks for.

        The key waits even if it was added meanwhile: its own actions cause most such additions.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = max(pause_s(failures, LEAST_S, MOST_S, draw), least_s)
        self._working.discard(key)
        self._again.discard(key)
        self._waiting(key).pop(key, None)
        self.add_at(key, now + pause)
        return pause

    def clear_failures(self, key: K) -> None:
        """Reset the back-off of a key."""
        self._failures.pop(key, None)

    def next_due(self) -> float | None:
        """Return when the first delayed key is due; None if no key is delayed."""
        while self._delayed and self._due.get(self._delayed[0][2]) != self._delayed[0][0]:
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None
