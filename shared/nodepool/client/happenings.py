"""What happened, as Kubernetes shows its events: once for each object that it regards."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nodepool import events
from nodepool.events import SeedEvent, Severity
from nodepool.messages import Envelope, address_of, decode
from nodepool.replica import Entry

KINDS: Final[dict[str, type[SeedEvent]]] = {
    kind.__name__: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, SeedEvent) and kind is not SeedEvent
}
"""The events that are shown, by name."""


@dataclass(frozen=True, slots=True)
class Happening:
    """A Kubernetes event: `kind` and `name` are the object it regards, `component` who said it."""

    time: datetime
    severity: Severity
    reason: str
    kind: str
    name: str
    component: str
    message: str


def happenings(entry: Entry) -> list[Happening]:
    """An entry of the log as Kubernetes shows it, once for each object; none for another kind."""
    address = address_of(entry.subject)
    kind = KINDS.get(address.name) if address is not None and address.kind == "evt" else None
    if address is None or kind is None:
        return []
    envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
    if not isinstance(envelope, Envelope):
        return []
    told = envelope.data
    return [
        Happening(
            time=entry.time,
            severity=kind.severity,
            reason=kind.reason,
            kind=regarded,
            name=told.node if regarded == "Node" else told.pool,
            component=address.service,
            message=told.message,
        )
        for regarded in kind.regarding
    ]


def regards(seen: Happening, pool: str, node: str) -> bool:
    """Whether it is about this Node, else this NodePool; empty names mean any."""
    if node:
        return (seen.kind, seen.name) == ("Node", node)
    return not pool or (seen.kind, seen.name) == ("NodePool", pool)
