"""What happened, as Kubernetes shows its events: once for each object that it regards."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nodepool.contract import events
from nodepool.contract.decode import decode
from nodepool.contract.events import KubernetesEvent, Severity
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope
from nodepool.contract.subjects import address_of

KINDS: Final[dict[str, type[KubernetesEvent]]] = {
    kind.__name__: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, KubernetesEvent) and kind is not KubernetesEvent
}
"""The events that are shown, by name."""


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """A Kubernetes event: `kind` and `name` are the object it regards, `component` who said it."""

    time: datetime
    severity: Severity
    reason: str
    kind: str
    name: str
    component: str
    message: str


def object_events(entry: Entry) -> list[ObjectEvent]:
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
        ObjectEvent(
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


def regards(seen: ObjectEvent, pool: str, node: str) -> bool:
    """Whether it is about this Node, else this NodePool; empty names mean any."""
    if node:
        return (seen.kind, seen.name) == ("Node", node)
    return not pool or (seen.kind, seen.name) == ("NodePool", pool)
