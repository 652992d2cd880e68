"""Reading a stream without a consumer, which takes long to be there after a server was lost.

Direct gets would be served by any replica, but no service has the right to them: the reply, which
is a stored message as it is, goes to any subject that the sender names.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime

from nodepool.contract.log import Entry
from nodepool.nats.log.api import leaders_message_at
from nodepool.nats.wire.client import HURRIED_S, BusClient
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError

LEAST, MOST = 2, 64
"""How many messages are requested at the same time: twice as many after each full reply."""
PAUSE_S = 0.05
"""The pause before the next requests if the stream has returned no new message."""


async def read_on(
    client: BusClient,
    stream: str,
    last: Callable[[], tuple[int, datetime | None]],
    goes_on: Callable[[], bool],
) -> AsyncIterator[Entry]:
    """Yield the messages after the one at position and time `last()`, in order, while `goes_on()`.

    A stream that does not have that message is another one or was set back: nothing is read from
    it. Reading stops at a position without a message until a consumer is there.
    """
    count = LEAST
    while goes_on():
        entries: Sequence[Entry] = ()
        with suppress(Conflict, InDoubt, ServerRefusal, NatsError, OSError):
            async with asyncio.timeout(HURRIED_S):
                entries = await _entries(client, stream, last()[0], count)
        is_same = bool(entries) and last() == (entries[0].position, entries[0].time)
        for entry in entries[1:] if is_same else ():
            if entry.position > last()[0] and goes_on():
                yield entry
        count = min(2 * count, MOST) if len(entries) == count else LEAST
        if len(entries) < LEAST or not is_same:
            await asyncio.sleep(PAUSE_S)


async def _entries(client: BusClient, stream: str, start: int, count: int) -> Sequence[Entry]:
    """Return `count` messages from a position on, or those before a position without a message."""
    positions = range(start, start + count)
    gets = (leaders_message_at(client, stream, position) for position in positions)
    entries = list[Entry]()
    for entry in await asyncio.gather(*gets):
        if entry is None:
            break
        entries.append(entry)
    return entries
