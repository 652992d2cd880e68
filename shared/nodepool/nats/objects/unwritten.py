"""The objects of the read model that wait to be written, and how long each has waited."""

import time
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from nodepool.nats.objects.stored_objects import ObjectKey
from nodepool.nats.wire.errors import Busy, ServerRefusal


class Lag(NamedTuple):
    """How far the read model is behind.

    seconds: for how long the oldest change not yet written has waited.
    objects: how many objects are not written yet.
    """

    seconds: float
    objects: int


class Unwritten:
    """The objects to write, in the order in which they changed.

    While the stored objects are not known, any object may differ from its stored version. Objects
    that turn out to differ count as waiting since the stored objects became unknown.

    fault: why the server refuses to store an object, as one line; empty if it does not refuse.

    `clock` gives seconds; only `lag` is called from other threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.fault = ""
        self._since: dict[ObjectKey, float] = {}
        self._in_flight: dict[ObjectKey, float] = {}
        self._unknown_since: float | None = clock()

    def __len__(self) -> int:
        return len(self._since)

    @property
    def is_known(self) -> bool:
        """Return whether the stored objects are known."""
        return self._unknown_since is None

    def note_loss(self) -> None:
        """Note that the stored objects are not known any more."""
        if self._unknown_since is None:
            self._unknown_since = self._clock()

    def note_recovery(self) -> float:
        """Note that the stored objects are known again; return since when they were not."""
        since, self._unknown_since = self._unknown_since, None
        return self._clock() if since is None else since

    def add(self, key: ObjectKey, since: float | None = None) -> None:
        """Mark an object as changed, now or at the time `since` of the clock."""
        if key not in self._since:
            self._since[key] = self._clock() if since is None else since

    def first(self, most: int) -> list[ObjectKey]:
        """Return the objects to write next, at most `most`."""
        return list(islice(self._since, most))

    def begin(self, key: ObjectKey) -> None:
        """Note that an object is being written."""
        self._in_flight[key] = self._since.pop(key)

    def again(self, key: ObjectKey) -> None:
        """Write an object again after the current write; it waits since it first changed."""
        self._since[key] = self._in_flight.get(key, self._clock())

    def note_refusal(self, key: ObjectKey, refusal: ServerRefusal) -> None:
        """Write an object again that the server has refused; it waits as after `again`."""
        self.again(key)
        if not isinstance(refusal, Busy):
            self.fault = f"KV_{key[0]}: {refusal}"

    def clear_in_flight(self) -> None:
        """Note that no object is being written any more."""
        self._in_flight.clear()

    def lag(self) -> Lag:
        """Return how far the read model is behind."""
        # Each of these lists is made atomically, even if other threads change the source.
        waiting, flying = list(self._since.values()), list(self._in_flight.values())
        moments = waiting + flying
        if (unknown := self._unknown_since) is not None:
            moments.append(unknown)
        oldest = min(moments, default=None)
        seconds = 0.0 if oldest is None else max(0.0, self._clock() - oldest)
        return Lag(seconds, len(waiting) + len(flying))
