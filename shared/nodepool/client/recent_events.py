"""The newest events of many objects, read in one pass; most events are counted, not decoded."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from nodepool.client.contents import data_of
from nodepool.client.events import CREATED, KINDS, ObjectEvent, object_events
from nodepool.contract.log import Entry
from nodepool.contract.subjects import address_of

KEPT: Final = 100
"""How many events per object and reason are kept: the newest. Other events are only counted."""

Regarded = tuple[str, str]
"""The kind of an object, `NodePool` or `Node`, and its name."""


@dataclass(slots=True)
class Group:
    """The events of one object with one reason.

    count: the number of events.
    first, last: when the first and the last event were stored.
    kept: the newest events, as messages of the log or decoded.
    """

    first: datetime
    last: datetime
    count: int = 0
    kept: deque[Entry | ObjectEvent] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, entry: Entry | ObjectEvent) -> None:
        """Count an event and keep it."""
        self.count += 1
        self.last = entry.time
        self.kept.append(entry)


class RecentEvents:
    """The events of some objects, each since a time that is given per object."""

    def __init__(self, since: Mapping[Regarded, datetime]) -> None:
        self._since = since
        self._groups: dict[Regarded, dict[str, Group]] = {}

    def read(self, entries: Iterable[Entry]) -> None:
        """Take messages of the log, in their order."""
        for entry in entries:
            for name, regarded in _list_regarded(entry):
                self._take(name, regarded, entry)

    def add(self, event: ObjectEvent) -> None:
        """Take an event, in the order of the log."""
        self._take(event.reason, (event.kind, event.name), event)

    def _take(self, name: str, regarded: Regarded, event: Entry | ObjectEvent) -> None:
        since = self._since.get(regarded)
        if since is None or event.time < since:
            return
        if name == CREATED:  # Earlier events are about an earlier NodePool of this name.
            self._groups.pop(regarded, None)
        groups = self._groups.setdefault(regarded, {})
        groups.setdefault(name, Group(event.time, event.time)).add(event)

    def of(self, kind: str, name: str) -> Iterator[tuple[Group, Sequence[ObjectEvent]]]:
        """Yield each group of events of one object, and the events of the group that are kept."""
        for group in self._groups.get((kind, name), {}).values():
            events = (event for each in group.kept for event in _decode(each))
            yield group, [event for event in events if (event.kind, event.name) == (kind, name)]


def _decode(event: Entry | ObjectEvent) -> Sequence[ObjectEvent]:
    return [event] if isinstance(event, ObjectEvent) else object_events(event)


def _list_regarded(entry: Entry) -> Iterator[tuple[str, Regarded]]:
    """Yield the name of the event and each object that it regards, without decoding it."""
    address = address_of(entry.subject)
    kind = KINDS.get(address.name) if address is not None and address.kind == "evt" else None
    if address is None or kind is None:
        return
    if "NodePool" in kind.regarding:
        yield address.name, ("NodePool", address.path[2])
    if "Node" in kind.regarding:
        node = data_of(entry).get("node")
        if isinstance(node, str):
            yield address.name, ("Node", node)
