"""Events as kubectl shows them: an event that is repeated is counted."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from nodepool.cli.times import human

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodepool.client import ObjectEvent

EVENT_HEADER = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


@dataclass(frozen=True, slots=True)
class CountedEvent:
    """An event that occurred `count` times.

    severity: `Normal` or `Warning`.
    reason: the name of the event.
    object: the object it regards, as `NodePool/training`.
    component: the service that reported it.
    first, last: when it occurred first and last.
    """

    severity: str
    reason: str
    object: str
    component: str
    message: str
    first: datetime
    last: datetime
    count: int = 1


def occurred_once(event: "ObjectEvent") -> CountedEvent:
    """An event with a count of one."""
    return CountedEvent(
        severity=event.severity,
        reason=event.reason,
        object=f"{event.kind}/{event.name}",
        component=event.component,
        message=event.message,
        first=event.time,
        last=event.time,
    )


def counted(events: "Iterable[ObjectEvent]") -> list[CountedEvent]:
    """Each different event once, ordered by when it occurred last."""
    totals: dict[tuple[str, ...], CountedEvent] = {}
    for event in map(occurred_once, events):
        key = (event.severity, event.reason, event.object, event.component, event.message)
        total = totals.pop(key, None)
        totals[key] = replace(total, last=event.last, count=total.count + 1) if total else event
    return list(totals.values())


def interval(event: CountedEvent, now: datetime) -> str:
    """How long ago it occurred: `5s`, or `5s (x3 over 2m)`."""
    first = human((now - event.first).total_seconds())
    if event.count == 1:
        return first
    return f"{human((now - event.last).total_seconds())} (x{event.count} over {first})"


def event_row(event: CountedEvent, now: datetime) -> tuple[str, ...]:
    """The cells of an event below `EVENT_HEADER`."""
    return (interval(event, now), event.severity, event.reason, event.object, event.message.strip())
