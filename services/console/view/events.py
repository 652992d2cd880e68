"""The list of events: filtered, newest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from console.view.model import Happening

SHOWN_MAX: Final = 100
"""The most events of a page."""
TEXT_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class EventsAsked:
    """The query of the list; an empty field matches all events.

    text: words that an event must have: in its object, reason, message or actor.
    """

    text: str = ""
    cluster: str = ""
    severity: str = ""
    kind: str = ""
    name: str = ""


def read_events_asked(query: Mapping[str, str]) -> EventsAsked:
    """Return what an address asks for."""
    severity, kind = query.get("severity", ""), query.get("kind", "")
    return EventsAsked(
        query.get("q", "").strip()[:TEXT_MAX],
        query.get("cluster", "")[:TEXT_MAX],
        severity if severity in ("Normal", "Warning") else "",
        kind if kind in ("NodePool", "Node") else "",
        query.get("name", "")[:TEXT_MAX],
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A message of the log: the event, and the objects that it is about, as kind and name."""

    event: Happening
    objects: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EventList:
    """The newest events that match the filter; `known` counts the events before the filter."""

    asked: EventsAsked
    lines: tuple[Line, ...]
    known: int
    matching: int


def list_events(happenings: Sequence[Happening], asked: EventsAsked) -> EventList:
    """Return the newest events that an address asks for, newest first."""
    found: dict[int, list[Happening]] = {}
    for each in happenings:
        if matches(each, asked):
            found.setdefault(each.position, []).append(each)
    newest = sorted(found, reverse=True)[:SHOWN_MAX]
    lines = tuple(Line(found[p][0], tuple((e.kind, e.name) for e in found[p])) for p in newest)
    return EventList(asked, lines, len({each.position for each in happenings}), len(found))


def matches(event: Happening, asked: EventsAsked) -> bool:
    """Return whether an event is asked for."""
    fields = (
        (asked.cluster, event.cluster),
        (asked.severity, event.severity),
        (asked.kind, event.kind),
        (asked.name, event.name),
    )
    if any(wanted and wanted != given for wanted, given in fields):
        return False
    if not asked.text:
        return True
    words = (event.cluster, event.name, event.reason, event.message, event.actor, event.severity)
    whole = " ".join((*words, str(event.position))).lower()
    return all(part in whole for part in asked.text.lower().split())
