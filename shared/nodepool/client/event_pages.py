"""Reading events from the gateway, page by page."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Final

from nodepool.client.asking import Asker
from nodepool.client.events import ObjectEvent
from nodepool.client.hearing import Hearing, hear
from nodepool.client.names import check_name
from nodepool.client.recent_events import RecentEvents, Regarded
from nodepool.client.session import Session
from nodepool.client.trim_gap import TrimGap
from nodepool.contract.documents import field, items, text
from nodepool.contract.keys import token

PAGE: Final = 1_000
"""The most events to ask for at a time."""
TURN_S: Final = 0.25
"""The least time between two pages of new events, in seconds."""
SOON_S: Final = 0.1
LATE_S: Final = 10.0
"""The shortest and the longest pause before looking for new events if none is heard, in seconds.

What is heard is in the log a moment later, and may be lost on its way.
"""
SINGLY_MAX: Final = 4
"""Events of up to this many objects are read one object after the other; of more, together."""


async def read_events(
    session: Session,
    asker: Asker,
    place: Mapping[str, object],
    *,
    since: datetime | None,
    after: int = 0,
    follow: bool = False,
) -> AsyncGenerator[ObjectEvent, None]:
    """Yield events in the order of the log, as `Events.read` describes.

    place: the cluster, NodePool and Node of the events, as fields of the query.
    """
    asked: dict[str, object] = {**place, "limit": PAGE}
    if since is not None:
        asked["since"] = since.astimezone(UTC).isoformat()
    async with AsyncExitStack() as stack:
        hearing: Hearing | None = None
        if follow:
            subject = _subject(session, str(place.get("pool") or ""))
            hearing = await stack.enter_async_context(hear(session, [subject]))
        pause_s = SOON_S
        while True:
            page = await asker.ask("Events", {**asked, "after": after}, patient=follow)
            note_trimmed(session, page, after)
            found = [_event(each) for each in items(page, "items")]
            for event in found:
                yield event
            position = field(page, "after")
            after = position if isinstance(position, int) else after
            if field(page, "atEnd") is not True:
                continue
            if hearing is None:
                return
            pause_s = await _wait(hearing, SOON_S if found else pause_s)


async def _wait(hearing: Hearing, pause_s: float) -> float:
    """Wait until it is time to look for new events; return how long to wait the next time."""
    is_heard = await hearing.wait(pause_s)
    if not is_heard:
        return min(pause_s * 2, LATE_S)
    await asyncio.sleep(TURN_S)
    return SOON_S


def _subject(session: Session, pool: str) -> str:
    name = token(check_name("name", pool)) if pool else "*"
    return f"np.evt.*.{token(session.org)}.{token(session.cluster)}.{name}.*"


async def read_recent(
    session: Session, asker: Asker, since: Mapping[Regarded, datetime], pools: Sequence[str]
) -> RecentEvents:
    """Return the events of some objects, as `Events.recent` describes."""
    recent = RecentEvents(since)
    pool = pools[0] if len(pools) == 1 else ""
    wanted = [("", "")]
    if len(since) <= SINGLY_MAX:
        wanted = [(name, "") if kind == "NodePool" else (pool, name) for kind, name in since]
    for each, node in wanted:
        place = {"cluster": session.cluster, "pool": each, "node": node}
        stream = read_events(session, asker, place, since=min(since.values()))
        async with aclosing(stream) as events:
            async for event in events:
                recent.add(event)
    return recent


def note_trimmed(session: Session, page: object, after: int) -> None:
    """Note where the log begins, if it lacks what was asked for; raise TrimGap after a position."""
    first = field(page, "first")
    if not isinstance(first, int) or field(page, "trimmed") is not True:
        return
    if 0 < after < first - 1:
        raise TrimGap(first, after + 1)
    session.trimmed_at = first


def _event(shown: object) -> ObjectEvent:
    """Return an event of a page."""
    position = field(shown, "position")
    return ObjectEvent(
        time=datetime.fromisoformat(text(shown, "time")),
        severity="Warning" if text(shown, "severity") == "Warning" else "Normal",
        reason=text(shown, "reason"),
        kind=text(shown, "kind"),
        name=text(shown, "name"),
        component=text(shown, "component"),
        message=text(shown, "message"),
        position=position if isinstance(position, int) else 0,
        actor=text(shown, "actor"),
    )
