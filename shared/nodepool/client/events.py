"""Kubernetes events: each message of the log becomes one event per object that it is about."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nodepool.client.audit import UNKNOWN, user_of
from nodepool.contract import events
from nodepool.contract.decode import decode
from nodepool.contract.events import KubernetesEvent, Severity
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope
from nodepool.contract.subjects import address_of

CREATED: Final = events.CWNodePoolCreated.__name__
"""The first event of a NodePool."""
KINDS: Final[dict[str, type[KubernetesEvent]]] = {
    kind.__name__: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, KubernetesEvent) and kind is not KubernetesEvent
}
"""The messages that are shown as Kubernetes events, by name."""


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """A Kubernetes event of one object.

    time: when the event was stored in the log.
    severity: `Normal` or `Warning`.
    reason: the name of the event.
    kind, name: the kind of the object, `NodePool` or `Node`, and its name.
    component: the service that reported the event.
    message: one sentence.
    position: the position of the event in the log; 0 if not known.
    actor: who sent the command that led to the event, such as `acme/alice` or `operator`, or the
        service that has begun it, such as `autoscaler`; `-` if the event follows from neither, or
        from a command of another organisation.
    """

    time: datetime
    severity: Severity
    reason: str
    kind: str
    name: str
    component: str
    message: str
    position: int = 0
    actor: str = ""


def object_events(entry: Entry) -> list[ObjectEvent]:
    """Return an event per object that a message regards; empty for a message of another kind."""
    address = address_of(entry.subject)
    kind = KINDS.get(address.name) if address is not None and address.kind == "evt" else None
    if address is None or kind is None:
        return []
    envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
    if not isinstance(envelope, Envelope):
        return []
    event = envelope.data
    actor = user_of(envelope.actor) if envelope.correlationid is not None else UNKNOWN
    return [
        ObjectEvent(
            time=entry.time,
            severity=kind.severity,
            reason=kind.reason,
            kind=regarded,
            name=event.node if regarded == "Node" else event.pool,
            component=address.service,
            message=event.message,
            position=entry.position,
            actor=actor,
        )
        for regarded in kind.regarding
    ]


def regards(event: ObjectEvent, pool: str, node: str) -> bool:
    """Return whether the event regards this Node, or this NodePool if `node` is empty.

    If both names are empty, every event matches.
    """
    if node:
        return (event.kind, event.name) == ("Node", node)
    return not pool or (event.kind, event.name) == ("NodePool", pool)
