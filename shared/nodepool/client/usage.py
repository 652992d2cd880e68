"""The replies of the replicas of the gateway: their number, stored bytes, and agents at work."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from nodepool.client.hearing import hear
from nodepool.client.session import Session
from nodepool.contract.documents import field, items

STATS: Final = "$SRV.STATS.gateway"
PING: Final = "$SRV.PING.gateway"
REPLIES_S: Final = 0.5
"""How long to wait for the replies of further replicas, in seconds."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an organisation has stored, and may store.

    stored: the bytes of the last hour.
    budget: how many bytes all replicas together let an organisation store within an hour.
    """

    org: str
    stored: int
    budget: int


async def read_usage(session: Session) -> list[Usage]:
    """Return the use of the storage budget of each organisation, most first."""
    stored: Counter[str] = Counter()
    budget = 0
    for data in await _read_data(session):
        by_org, own = data.get("storedBytes"), data.get("bytesPerHour")
        budget += own if isinstance(own, int) else 0
        if isinstance(by_org, dict):
            stored.update({org: size for org, size in by_org.items() if isinstance(size, int)})
    return [Usage(org, size, budget) for org, size in stored.most_common()]


async def read_agents(session: Session) -> dict[str, str]:
    """Return the release of each agent that works through the gateway, by `<org>/<cluster>`."""
    agents: dict[str, str] = {}
    for data in await _read_data(session):
        found = data.get("agents")
        if isinstance(found, dict):
            agents |= {name: str(release) for name, release in found.items()}
    return agents


async def count_replicas(session: Session, patience_s: float) -> int:
    """Return how many replicas answer, if the first one does within `patience_s` seconds."""
    return len(await _ask(session, PING, patience_s))


async def _read_data(session: Session) -> list[Mapping[str, object]]:
    """Return what each endpoint of each replica says of its use."""
    replies = await _ask(session, STATS, REPLIES_S)
    return [data for content in replies for data in _data_in(content)]


async def _ask(session: Session, subject: str, patience_s: float) -> list[bytes]:
    """Return the replies of all replicas; the first of them may take `patience_s`."""
    found: list[bytes] = []
    inbox = session.connection.new_inbox()
    async with hear(session, [inbox]) as hearing:
        await session.connection.publish(subject, b"", reply=inbox)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s) as patience:
                while True:
                    # Where nobody listens, the server replies with nothing.
                    found += [reply.content for reply in await hearing.next() if reply.content]
                    patience.reschedule(asyncio.get_running_loop().time() + REPLIES_S)
    return found


def _data_in(content: bytes) -> Iterator[Mapping[str, object]]:
    try:
        reply: object = json.loads(content)
    except (ValueError, RecursionError):
        return
    for endpoint in items(reply, "endpoints"):
        data = field(endpoint, "data")
        if isinstance(data, dict):
            yield data
