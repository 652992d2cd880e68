"""Reads the past from the log: events of a NodePool, preemptions, and single positions."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final

from console.host.mirror import Mirror
from console.host.noting import noted
from console.view.model import Happening, Place, without_reason
from console.view.preemptions import PAST, Past
from nodepool.client import ClientError
from nodepool.client.asking import Reply
from nodepool.client.audit import CommandRecord, record_in
from nodepool.client.gateway_objects import number_in
from nodepool.client.preemptions import KINDS, Preemption, Preemptions
from nodepool.contract.cluster_events import event_kinds
from nodepool.contract.documents import field, items, text
from nodepool.contract.log import Entry
from nodepool.contract.queries import NAMES_MAX

Ask = Callable[[str, Mapping[str, object]], Awaitable[Reply]]
LOOK_BACK: Final = timedelta(hours=24)
"""How far back the timeline of a NodePool reaches."""
PAGES_MAX: Final = 5
"""The most pages of the log that are read for one page."""
KEPT_S: Final = 20.0
"""How long the log is not read again for a page, in seconds."""
WAIT_S: Final = 1.0
"""How long a live page waits for the first events that it shows, in seconds."""
PREEMPTIONS_KEPT_S: Final = 1.0
"""After how many seconds new preemptions are looked for."""
EVENTS_MAX: Final = 2_000
"""The most events of a NodePool or Node that are kept: the newest."""
PLACES_MAX: Final = 64
"""The most NodePools and Nodes whose events are kept."""
LEFT: Final = "CWNodeDeleted"
"""The event of a NodePool that a Node has left."""
AROUND: Final = 60
"""How many positions before an event are shown with it."""


@dataclass(slots=True)
class _Events:
    """The events of a NodePool or a Node as far as they are known.

    found: the newest, oldest first. read_to: the log was read up to this position.
    is_complete: whether that was its end. again: when it may be read again, by a clock.
    reading: the task that reads the log now.
    """

    found: list[Happening] = field_of(default_factory=list)
    read_to: int = 0
    is_complete: bool = False
    again: float = 0.0
    reading: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Read no more."""
        if self.reading is not None:
            self.reading.cancel()


class History:
    """Reads the past through the gateway, and keeps it for a moment.

    now: the time that a page shows. wait_s: how long a page waits for its first events; a page
    that is kept live shows later what was read later.
    """

    def __init__(
        self,
        mirror: Mirror,
        ask: Ask,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        wait_s: float = WAIT_S,
    ) -> None:
        self._mirror, self._ask, self._now, self._wait_s = mirror, ask, now, wait_s
        self._events: dict[tuple[str, Place], _Events] = {}
        self._departures: dict[Place, tuple[float, Happening | None]] = {}
        self._preemptions: dict[str, _Preempted] = {}
        self.preemptions_kept_s = PREEMPTIONS_KEPT_S

    async def events_of(self, kind: str, place: Place) -> Sequence[Happening]:
        """Return the events of a `NodePool` or `Node` of the last day, with the newest ones.

        The log has thousands of events of a large NodePool, which no live page waits for. If it
        cannot be read, it is read again soon, and the events of the mirror are all there is.
        """
        known = self._events.get((kind, place))
        if known is None:
            if len(self._events) >= PLACES_MAX:
                self._events.pop(next(iter(self._events))).stop()
            known = self._events[kind, place] = _Events()
        is_current = known.reading is not None or self._follow(kind, place, known)
        if not is_current and time.monotonic() >= known.again:
            known.reading = asyncio.create_task(self._read_events(kind, place, known))
        if known.reading is not None and not known.read_to:
            await asyncio.wait((known.reading,), timeout=self._wait_s)
        return self._list_known(kind, place)

    @noted
    def _list_known(self, kind: str, place: Place) -> Sequence[Happening]:
        """Return the events about an object that are known now.

        An open page asks again at each change, so new events are taken from the mirror here, before
        the mirror loses them.
        """
        known = self._events.get((kind, place), _Events())
        self._follow(kind, place, known)
        return [*known.found, *self._newer(kind, place, known)]

    def _follow(self, kind: str, place: Place, known: _Events) -> bool:
        """Take the newest events from the mirror, unless it has lost events that are not known.

        The mirror has all events of a cluster that came after the first one that it has.
        """
        nearby = self._mirror.happenings.of(place.cluster)
        if not (known.is_complete and nearby and nearby[0].position <= known.read_to):
            return False
        known.found = [*known.found, *self._newer(kind, place, known)][-EVENTS_MAX:]
        known.read_to = max(known.read_to, nearby[-1].position)
        return True

    def _newer(self, kind: str, place: Place, known: _Events) -> Sequence[Happening]:
        """Return the events of the mirror after those that are known."""
        end = known.found[-1].position if known.found else 0
        own = self._mirror.happenings.about(kind, place)
        return [each for each in own if each.position > end]

    async def _read_events(self, kind: str, place: Place, known: _Events) -> None:
        """Read on in the log, some pages at a time."""
        name = "pool" if kind == "NodePool" else "node"
        since = (self._now() - LOOK_BACK).isoformat()
        asked = {"cluster": place.cluster, name: place.name, "since": since, "limit": 1_000}
        pause_s = KEPT_S
        try:
            for _ in range(PAGES_MAX):
                page = await self._ask("Events", {**asked, "after": known.read_to})
                read = [read_happening(place.cluster, each) for each in items(page, "items")]
                known.found = [*known.found, *read][-EVENTS_MAX:]
                known.read_to = number_in(page, "after")
                known.is_complete = field(page, "atEnd") is True
                if read:
                    self._mirror.note_change()
                if known.is_complete:
                    break
        except ClientError:
            pause_s = WAIT_S
        finally:
            known.again, known.reading = time.monotonic() + pause_s, None

    async def departure_of(self, node: Place) -> Happening | None:
        """Return the event with which a Node has left a NodePool within the last day."""
        self._mirror.read_everything()  # A page looks again with any change, as for preemptions.
        now = time.monotonic()
        read_at, found = self._departures.get(node, (-KEPT_S, None))
        if now - read_at >= KEPT_S:
            found = await self._read_departure(node)
            if len(self._departures) >= PLACES_MAX:
                del self._departures[next(iter(self._departures))]
            self._departures[node] = now, found
        return found

    async def _read_departure(self, node: Place) -> Happening | None:
        since = (self._now() - LOOK_BACK).isoformat()
        asked = {"cluster": node.cluster, "names": [LEFT], "limit": 1_000}
        found, place = 0, dict[str, object](since=since)
        for _ in range(PAGES_MAX):
            page = await self._ask("Messages", {**asked, **place})
            for each in items(page, "items"):
                if text(each, "event", "data", "node") == node.name:
                    position = field(each, "position")
                    found = position if isinstance(position, int) else found
            if field(page, "atEnd") is True:
                break
            place = {"after": number_in(page, "after")}
        own = await self.around(node.cluster, found) if found else []
        return next((each for each in own if each.position == found), None)

    async def around(self, cluster: str, position: int) -> Sequence[Happening]:
        """Return the events at a position, and those shortly before and after it."""
        asked = {"cluster": cluster, "after": max(0, position - AROUND), "limit": 2 * AROUND}
        page = await self._ask("Events", asked)
        return [read_happening(cluster, each) for each in items(page, "items")]

    async def message_at(self, cluster: str, position: int) -> Reply | None:
        """Return the event at a position as the log has it; None if it is not about the cluster."""
        names = sorted(event_kinds())
        for first in range(0, len(names), NAMES_MAX):
            some = names[first : first + NAMES_MAX]
            asked = {"cluster": cluster, "names": some, "after": position - 1, "limit": 1}
            page = await self._ask("Messages", asked)
            for item in items(page, "items"):
                event = field(item, "event")
                if field(item, "position") == position and isinstance(event, dict):
                    return event
        return None

    async def command_at(self, position: int) -> CommandRecord | None:
        """Return the command at a position; None if the organisation has no command there."""
        page = await self._ask("Audit", {"after": position - 1, "limit": 1})
        found = [record_in(each) for each in items(page, "items")]
        return found[0] if found and found[0].position == position else None

    async def preemptions(self) -> Sequence[Past]:
        """Return the preemptions of the last seven days in all clusters."""
        found = list[Past]()
        since = self._now() - PAST
        self._mirror.read_everything()
        for cluster in self._mirror.clusters:
            known = self._preemptions.setdefault(cluster, _Preempted(Preemptions()))
            if time.monotonic() - known.read_at >= self.preemptions_kept_s:
                before, known.read_at = known.read_at, time.monotonic()
                try:
                    await self._read_preemptions(cluster, known, since)
                except BaseException:
                    known.read_at = before
                    raise
            found += [_past(cluster, each) for each in known.found.all() if each.began >= since]
        return found

    async def _read_preemptions(self, cluster: str, known: "_Preempted", since: datetime) -> None:
        asked = {"cluster": cluster, "names": sorted(KINDS), "limit": 1_000}
        for _ in range(4 * PAGES_MAX):
            place = {"after": known.after} if known.after else {"since": since.isoformat()}
            page = await self._ask("Messages", {**asked, **place})
            known.found.read(map(_entry, items(page, "items")))
            known.after = number_in(page, "after")
            if field(page, "atEnd") is True:
                return


@dataclass(slots=True)
class _Preempted:
    """The preemptions of a cluster, and where reading goes on."""

    found: Preemptions
    after: int = 0
    read_at: float = -inf


def read_happening(cluster: str, item: object) -> Happening:
    """Return an event of an answer of the gateway."""
    position = field(item, "position")
    return Happening(
        cluster,
        position if isinstance(position, int) else 0,
        datetime.fromisoformat(text(item, "time")),
        text(item, "severity"),
        text(item, "reason"),
        text(item, "kind"),
        text(item, "name"),
        without_reason(text(item, "message"), text(item, "reason")),
        text(item, "actor") or "-",
    )


def _entry(item: object) -> Entry:
    position, content = field(item, "position"), json.dumps(field(item, "event")).encode()
    moment = datetime.fromisoformat(text(item, "time"))
    number = position if isinstance(position, int) else 0
    return Entry(number, moment, text(item, "subject"), content, {})


def _past(cluster: str, known: Preemption) -> Past:
    late = [each for each in (known.drain_late, known.end_late) if each is not None]
    return Past(
        Place(cluster, known.node),
        known.pool,
        known.position,
        known.began,
        known.cause,
        known.beneficiary.rpartition("/")[2],
        (known.drained - known.began).total_seconds() if known.drained else None,
        (known.gone - known.began).total_seconds() if known.gone else None,
        max(late).total_seconds() if late else None,
        known.lost,
    )
