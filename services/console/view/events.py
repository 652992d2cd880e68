"""The list of events: filtered, newest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from console.view.model import Happening
from console.view.moments import parse_position
from console.view.paging import (
    FILTER_MAX,
    Cut,
    cut,
    has_words,
    read_filter,
    read_page,
)


@dataclass(frozen=True, slots=True)
class EventsAsked:
    """The query of the list; an empty field matches all events.

    text: words that an event must have: in its object, reason, message or actor.
    page: which page of the list; the first one is 1.
    until: the position of the newest event of the list, so that newer events do not move the pages
        while somebody reads on; 0 for the newest event of all.
    """

    text: str = ""
    cluster: str = ""
    severity: str = ""
    kind: str = ""
    name: str = ""
    page: int = 1
    until: int = 0

    def query(self, page: int) -> Mapping[str, object]:
        """Return the query of an address of another page of this list."""
        asked = {"q": self.text, "cluster": self.cluster, "severity": self.severity}
        about = {"kind": self.kind, "name": self.name}
        place = {"page": page, "until": self.until} if page > 1 else {"page": "", "until": ""}
        return {**asked, **about, **place}


def read_events_asked(query: Mapping[str, str]) -> EventsAsked:
    """Return what an address asks for."""
    severity, kind = query.get("severity", ""), query.get("kind", "")
    page = read_page(query)
    return EventsAsked(
        read_filter(query),
        query.get("cluster", "")[:FILTER_MAX],
        severity if severity in ("Normal", "Warning") else "",
        kind if kind in ("NodePool", "Node") else "",
        query.get("name", "")[:FILTER_MAX],
        page,
        (parse_position(query.get("until", "")) or 0) if page > 1 else 0,
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A message of the log: the event, and the objects that it is about, as kind and name."""

    event: Happening
    objects: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EventList:
    """A page of the events that match the filter.

    asked: the query of the list, with the position of its newest event.
    known, since: how many events there are before the filter, and the time of the oldest one.
    """

    asked: EventsAsked
    lines: tuple[Line, ...]
    known: int
    since: datetime | None
    cut: Cut


def list_events(happenings: Sequence[Happening], asked: EventsAsked) -> EventList:
    """Return the page of events that an address asks for, newest first."""
    newest = max((each.position for each in happenings), default=0)
    older = [each for each in happenings if each.position <= asked.until]
    if not older or asked.until > newest:
        # The address names no position of the log, or all events up to there are forgotten.
        is_forgotten = asked.until > 0 and not older
        asked = replace(asked, until=newest, page=1 if is_forgotten else asked.page)
    happenings = older or happenings
    found: dict[int, list[Happening]] = {}
    for each in happenings:
        if matches(each, asked):
            found.setdefault(each.position, []).append(each)
    page = cut(len(found), asked.page)
    shown = sorted(found, reverse=True)[page.start : page.end]
    lines = tuple(Line(found[p][0], tuple((e.kind, e.name) for e in found[p])) for p in shown)
    known = len({each.position for each in happenings})
    since = min((each.time for each in happenings), default=None)
    return EventList(asked, lines, known, since, page)


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
    return has_words(asked.text, (*words, str(event.position)))
