"""Counts what organisations have stored within the last hour, which a new replica must know."""

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.budgets import HOUR_S, Storage
from nodepool.contract.log import Entry
from nodepool.contract.subjects import address_of
from nodepool.nats.log import api
from nodepool.nats.log.pages import position_before
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection

COST: Final = "Nodepool-Cost"
"""The header of a stored message: what it has counted against the budget of its organisation, in
bytes. A message that did not come through the gateway has none."""
STORED: Final = ("np.cmd.>", "np.evt.agent.>")
"""What the gateway stores. Each is read by itself: with two filters, nats-server 2.15 takes twenty
times as long."""
POSITIONS_MAX: Final = 250_000
"""How many of the newest positions of the log are looked at, which takes three seconds if all of
them are commands."""
LOOK_S: Final = 5.0
"""How long the server may be silent until it is asked again."""


async def count_stored(
    connection: Connection, storage: Storage, clock: Callable[[], float]
) -> None:
    """Note what every replica has stored within the last hour, or nothing if an error is raised.

    clock: seconds of a monotonic clock, as the storage has it.
    """
    now, at = datetime.now(UTC), clock()
    end = await api.last_position(connection, STREAM)
    before = await position_before(connection, now - timedelta(seconds=HOUR_S), end)
    start = max(before, end - POSITIONS_MAX) + 1
    found = list[tuple[str, float, int]]()
    for stored in STORED if start <= end else ():
        async for entry in _headers(connection, stored, start, end):
            address, cost = address_of(entry.subject), entry.headers.get(COST, "")
            if address is not None and cost.isdecimal():
                age_s = max((now - entry.time).total_seconds(), 0.0)
                found.append((address.path[0], at - age_s, int(cost)))
    for org, moment, size in found:
        storage.note(org, at, moment, size)


async def _headers(
    connection: Connection, stored: str, start: int, end: int
) -> AsyncGenerator[Entry, None]:
    """Yield the messages from one position to another, without their content."""
    reader = Reader(connection, STREAM, (stored,), start=start)
    reader.headers_only = True
    await reader.open()
    try:
        while reader.last < end and reader.pending:
            for entry in await reader.next(LOOK_S):
                yield entry
    finally:
        await reader.close()
