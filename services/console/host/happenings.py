"""The newest events of an organisation, as they happen."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from console.host.history import read_happening
from console.host.mirror import Mirror
from nodepool.client import Client
from nodepool.client.asking import Asker
from nodepool.client.event_pages import note_trimmed
from nodepool.client.gateway_objects import number_in
from nodepool.client.hearing import hear
from nodepool.client.session import Session
from nodepool.client.trim_gap import TrimGap
from nodepool.contract.documents import field, items
from nodepool.contract.keys import token

BACK: Final = 2_500
"""Reading begins this many positions before the end of the log, or further back: see `ENOUGH`."""
FURTHER: Final = 64
"""The largest multiple of `BACK` that reading goes back."""
ENOUGH: Final = 100
"""The number of events for which reading goes further back: as many as a page shows. Neighbours may
have caused most of the messages that lie nearer."""
PAGE: Final = 250
"""The most events to ask for at a time: a busy gateway takes a second for them."""
LOOK_S: Final = 0.1
TURN_S: Final = 0.5
"""The least time between two looks for where to begin, and for new events, of a cluster, in
seconds: each counts as ten queries of the budget of the organisation."""
LATE_S: Final = 5.0
"""The longest time between two looks for new events, in seconds: a message that announces events
may be lost."""


async def follow_happenings(client: Client, mirror: Mirror) -> None:
    """Keep the newest events of every cluster in a mirror until the connection fails."""
    asker, session = Asker(client.session), client.session
    read_to = dict[str, int]()
    async with hear(session, [f"np.evt.*.{token(session.org)}.>"]) as hearing:
        asked = {"kind": "clusters", "limit": 1, "current": True}
        end = number_in(await asker.ask("List", asked, patient=True), "position")
        await mirror.wait_until_read()
        newest = max((each.position for each in mirror.happenings.all()), default=0)
        begin = newest
        if newest < max(1, end - BACK):
            mirror.happenings.clear()  # There are no gaps in what is kept.
            begin = await _choose_begin(asker, mirror.clusters, end)
        while True:
            for cluster in mirror.clusters:
                after = read_to.get(cluster, begin)
                try:
                    read_to[cluster] = await add_events(mirror, session, asker, cluster, after)
                except TrimGap:
                    mirror.happenings.clear()  # The next session begins where the log does.
                    raise
            await hearing.wait(LATE_S)
            await asyncio.sleep(TURN_S * max(1, len(mirror.clusters)))


async def add_events(
    mirror: Mirror, session: Session, asker: Asker, cluster: str, after: int
) -> int:
    """Add the events of a cluster after a position; return up to where the log was read.

    Raises TrimGap if the log has lost events after that position.
    """
    while True:
        page = await asker.ask("Events", {"cluster": cluster, "after": after, "limit": PAGE})
        note_trimmed(session, page, after)
        for item in items(page, "items"):
            mirror.add(read_happening(cluster, item))
        after = number_in(page, "after")
        if field(page, "atEnd") is True:
            return after


async def _choose_begin(asker: Asker, clusters: Sequence[str], end: int) -> int:
    """Return the position after which events are read, which the log still has."""
    first = 1

    async def has_enough(after: int) -> bool:
        nonlocal first
        found = 0
        for cluster in clusters:
            asked = {"cluster": cluster, "after": after, "limit": ENOUGH}
            page = await asker.ask("Events", asked, patient=True)
            await asyncio.sleep(LOOK_S)
            first, found = number_in(page, "first"), found + len(items(page, "items"))
            if found >= ENOUGH or after < first or field(page, "atEnd") is not True:
                return True
        return False

    return max(await find_begin(has_enough, end), first - 1)


async def find_begin(has_enough: Callable[[int], Awaitable[bool]], end: int) -> int:
    """Return how far back to begin: `BACK` positions, or further until there are enough events.

    Far back there may be far more than enough, which nobody waits for: what is read beyond the
    last place with too few are `BACK` positions at most.
    """
    too_few, begin, least = end, max(0, end - BACK), max(0, end - FURTHER * BACK)
    while begin > least and not await has_enough(begin):
        too_few, begin = begin, max(least, end - 4 * (end - begin))
    while too_few - begin > BACK:
        middle = (too_few + begin) // 2
        if await has_enough(middle):
            begin = middle
        else:
            too_few = middle
    return begin
