"""What each organisation has stored within an hour, as the replicas of the gateway count it."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from nodepool.client.hearing import hear
from nodepool.client.session import Session
from nodepool.contract.documents import field, items

STATS: Final = "$SRV.STATS.gateway"
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
    inbox = session.connection.new_inbox()
    async with hear(session, [inbox]) as hearing:
        await session.connection.publish(STATS, b"", reply=inbox)
        with suppress(TimeoutError):
            async with asyncio.timeout(REPLIES_S):
                while True:
                    for reply in await hearing.next():
                        of_replica = _usage_in(reply.content)
                        budget += of_replica.pop("", 0)
                        stored.update(of_replica)
    return [Usage(org, size, budget) for org, size in stored.most_common()]


def _usage_in(content: bytes) -> dict[str, int]:
    """Return the bytes by organisation in the reply of a replica; its budget by the empty name."""
    try:
        reply: object = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    usage: dict[str, int] = {}
    for endpoint in items(reply, "endpoints"):
        data = field(endpoint, "data")
        by_org = field(data, "storedBytes") if isinstance(data, dict) else None
        if isinstance(by_org, dict):
            usage = {org: size for org, size in by_org.items() if isinstance(size, int)}
            budget = field(data, "bytesPerHour")
            usage[""] = budget if isinstance(budget, int) else 0
    return usage
