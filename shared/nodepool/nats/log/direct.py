"""Reading a stream from any of its replicas, without a consumer and without a leader.

See https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-31.md.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime

from nodepool.contract.log import Entry
from nodepool.nats.log.api import entry_of
from nodepool.nats.wire.client import HURRIED_S, BusClient
from nodepool.nats.wire.library import Msg, NatsError

MOST = 256
"""The most messages that the server returns for one request."""
PAUSE_S = 0.05
"""The pause before the next request if a request has returned no messages."""


async def read_on(
    client: BusClient,
    stream: str,
    last: Callable[[], tuple[int, datetime | None]],
    goes_on: Callable[[], bool],
) -> AsyncIterator[Entry]:
    """Yield the messages after the one at position and time `last()`, in order, while `goes_on()`.

    A copy that does not have that message is of another log or behind: nothing is read from it. A
    copy may be some milliseconds behind the leader; what it lacks comes with a later request.
    """
    while goes_on():
        entries: Sequence[Entry] = ()
        with suppress(NatsError, OSError):
            async with asyncio.timeout(HURRIED_S):
                entries = await _entries(client, stream, last()[0])
        is_same = bool(entries) and last() == (entries[0].position, entries[0].time)
        for entry in entries[1:] if is_same else ():
            if entry.position > last()[0] and goes_on():
                yield entry
        if len(entries) < 2 or not is_same:
            await asyncio.sleep(PAUSE_S)


async def _entries(client: BusClient, stream: str, start: int) -> Sequence[Entry]:
    entries: list[Entry] = []
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def receive(message: Msg) -> None:
        headers = message.headers or {}
        if "Nats-Subject" in headers:
            entries.append(entry_of(message, headers))
        elif not end.done():
            end.set_result(None)  # A message without a subject marks the end of the batch.

    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=receive)
    try:
        body = json.dumps({"seq": start, "batch": MOST}).encode()
        await client.publish(f"$JS.API.DIRECT.GET.{stream}", body, reply=inbox)
        await end
    finally:
        await subscription.unsubscribe()
    return entries
