"""The newest events of an organisation, as they happen."""

import asyncio
from contextlib import aclosing
from typing import Final

from console.host.mirror import Mirror
from console.view.model import Happening, without_reason
from nodepool.client import Client
from nodepool.client.asking import Asker
from nodepool.client.event_pages import read_events
from nodepool.client.events import ObjectEvent
from nodepool.client.gateway_objects import number_in
from nodepool.client.hearing import hear
from nodepool.contract.keys import token

BACK: Final = 2_500
"""Reading begins this many positions before the end of the log."""
PAGE: Final = 250
"""The most events to ask for at a time: a busy gateway takes a second for them."""
TURN_S: Final = 0.5
"""The least time between two looks for new events of a cluster, in seconds: each counts as ten
queries of the budget of the organisation."""
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
        newest = max((each.position for each in mirror.happenings), default=0)
        begin = max(0, end - BACK, newest)
        if begin > newest:
            mirror.happenings.clear()  # There are no gaps in what is kept.
        await mirror.wait_until_read()
        while True:
            for cluster in mirror.clusters:
                after = read_to.setdefault(cluster, begin)
                place = {"cluster": cluster, "pool": "", "node": ""}
                stream = read_events(session, asker, place, since=None, after=after, limit=PAGE)
                async with aclosing(stream) as events:
                    async for event in events:
                        read_to[cluster] = max(read_to[cluster], event.position)
                        mirror.add(happening_of(cluster, event))
            await hearing.wait(LATE_S)
            await asyncio.sleep(TURN_S * max(1, len(mirror.clusters)))


def happening_of(cluster: str, event: ObjectEvent) -> Happening:
    """Return an event of a cluster as pages show it."""
    return Happening(
        cluster,
        event.position,
        event.time,
        event.severity,
        event.reason,
        event.kind,
        event.name,
        without_reason(event.message, event.reason),
        event.actor or "-",
    )
