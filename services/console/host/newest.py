"""The newest events of an organisation, by what they are about."""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final

from console.host.noting import noted
from console.view.model import Happening, Place

HAPPENINGS_MAX: Final = 2_000
"""The most events that are kept: the newest."""


class Newest:
    """The newest events, in the order in which they came."""

    def __init__(self) -> None:
        self._all = deque[Happening]()
        self._by = dict[Hashable, deque[Happening]]()

    @noted
    def all(self) -> Sequence[Happening]:
        """Return all events."""
        return tuple(self._all)

    @noted
    def about(self, kind: str, place: Place) -> Sequence[Happening]:
        """Return the events about a `NodePool` or a `Node`."""
        return tuple(self._by.get((kind, place), ()))

    def of(self, cluster: str) -> Sequence[Happening]:
        """Return the events of a cluster; the sequence changes with the next event."""
        return self._by.get(cluster, ())  # A copy of thousands would cost more than a page.

    def add(self, event: Happening) -> None:
        """Add an event; the oldest one makes room."""
        self._all.append(event)
        for key in _list_keys(event):
            self._by.setdefault(key, deque()).append(event)
        if len(self._all) > HAPPENINGS_MAX:
            for key in _list_keys(self._all.popleft()):
                self._by[key].popleft()
                if not self._by[key]:
                    del self._by[key]

    def clear(self) -> None:
        """Forget all events."""
        self._all.clear()
        self._by.clear()


def _list_keys(event: Happening) -> Sequence[Hashable]:
    return event.cluster, (event.kind, event.place)
