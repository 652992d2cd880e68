"""Events as kubectl shows them: the same one again is counted, not repeated."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from nodepool.cli.times import human

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodepool.client import ObjectEvent

EVENT_HEADER = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


@dataclass(frozen=True, slots=True)
class Told:
    """An event that was seen `count` times, from `first` to `last`."""

    severity: str
    reason: str
    object: str
    component: str
    message: str
    first: datetime
    last: datetime
    count: int = 1


def told(event: "ObjectEvent") -> Told:
    """An event seen once."""
    return Told(
        severity=event.severity,
        reason=event.reason,
        object=f"{event.kind}/{event.name}",
        component=event.component,
        message=event.message,
        first=event.time,
        last=event.time,
    )


def counted(object_events: "Iterable[ObjectEvent]") -> list[Told]:
    """Each different event once, in the order in which they were last seen."""
    found: dict[tuple[str, ...], Told] = {}
    for event in object_events:
        once = told(event)
        key = (once.severity, once.reason, once.object, once.component, once.message)
        before = found.pop(key, None)
        found[key] = replace(before, last=once.last, count=before.count + 1) if before else once
    return list(found.values())


def interval(told: Told, now: datetime) -> str:
    """When it was seen: `5s`, or `5s (x3 over 2m)`."""
    first = human((now - told.first).total_seconds())
    if told.count == 1:
        return first
    return f"{human((now - told.last).total_seconds())} (x{told.count} over {first})"


def event_row(told: Told, now: datetime) -> tuple[str, ...]:
    """The cells of an event under `EVENT_HEADER`."""
    return (interval(told, now), told.severity, told.reason, told.object, told.message.strip())
