"""Events as kubectl shows them: repeated events are shown once, with their count."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from nodepool.cli.times import age, human
from nodepool.contract.documents import Document, field, text
from nodepool.contract.moments import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nodepool.client import ObjectEvent
    from nodepool.client.recent_events import Group


SIMILAR_MAX = 10
"""How many different events per object and reason are shown before they are combined."""
ACTOR = "compute.coreweave.com/actor"
"""The annotation that names who sent the command that led to an event."""
COMBINED = "(combined from similar events): "
"""The prefix of the message of combined events, as in Kubernetes; the newest message follows."""


@dataclass(frozen=True, slots=True)
class CountedEvent:
    """An event that occurred `count` times.

    severity: `Normal` or `Warning`.
    reason: the name of the event.
    object: the object that the event is about, such as `NodePool/training`.
    component: the service that reported the event.
    first, last: when the event occurred first and last.
    position: the position of the first occurrence in the log.
    actor: who sent the command that led to the last occurrence; see `ObjectEvent`.
    """

    severity: str
    reason: str
    object: str
    component: str
    message: str
    first: datetime
    last: datetime
    count: int = 1
    position: int = 0
    actor: str = ""


def occurred_once(event: "ObjectEvent") -> CountedEvent:
    """Return an event with a count of one."""
    return CountedEvent(
        severity=event.severity,
        reason=event.reason,
        object=f"{event.kind}/{event.name}",
        component=event.component,
        message=event.message,
        first=event.time,
        last=event.time,
        position=event.position,
        actor=event.actor,
    )


def count_events(events: "Iterable[ObjectEvent]") -> list[CountedEvent]:
    """Return each different event once, ordered by when it occurred last."""
    totals: dict[tuple[str, ...], CountedEvent] = {}
    for event in map(occurred_once, events):
        key = (event.severity, event.reason, event.object, event.component, event.message)
        total = totals.pop(key, None)
        totals[key] = event
        if total is not None:
            count, actor = total.count + 1, event.actor
            totals[key] = replace(total, last=event.last, count=count, actor=actor)
    return list(totals.values())


def combine_events(groups: "Iterable[tuple[Group, Sequence[ObjectEvent]]]") -> list[CountedEvent]:
    """Return the events of one object, ordered by when each occurred last.

    More than `SIMILAR_MAX` events with one reason are one event, as kubectl's server combines them.
    """
    events: list[CountedEvent] = []
    for group, kept in groups:
        different = count_events(kept)
        if len(different) <= SIMILAR_MAX and group.count == len(kept):
            events += different
        elif different:
            newest = different[-1]
            message = newest.message if len(different) == 1 else f"{COMBINED}{newest.message}"
            total = replace(newest, message=message, count=group.count)
            events.append(replace(total, first=group.first, last=group.last))
    return sorted(events, key=lambda event: event.last)


def interval(event: CountedEvent, now: datetime) -> str:
    """Return how long ago an event occurred: `5s`, or `5s (x3 over 2m)`."""
    first = human((now - event.first).total_seconds())
    if event.count == 1:
        return first
    return f"{human((now - event.last).total_seconds())} (x{event.count} over {first})"


def event_document(event: CountedEvent) -> Document:
    """Return the event as an object of the Kubernetes API (Event v1).

    See https://kubernetes.io/docs/reference/kubernetes-api/.
    """
    kind, _, name = event.object.partition("/")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{name}.{event.position:x}",
            "creationTimestamp": rfc3339(event.first),
            **({"annotations": {ACTOR: event.actor}} if event.actor else {}),
        },
        "involvedObject": {"kind": kind, "name": name},
        "reason": event.reason,
        "message": event.message.strip(),
        "type": event.severity,
        "count": event.count,
        "firstTimestamp": rfc3339(event.first),
        "lastTimestamp": rfc3339(event.last),
        "source": {"component": event.component},
    }


def last_seen(document: Document, now: datetime) -> str:
    """Return the `interval` of the document of an event."""
    first = age(text(document, "firstTimestamp"), now)
    count = field(document, "count")
    if count in (None, 1):
        return first
    return f"{age(text(document, 'lastTimestamp'), now)} (x{count} over {first})"
