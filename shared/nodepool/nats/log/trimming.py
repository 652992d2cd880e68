"""Trimming the log: exactly by position, and only what is known to be the same log."""

import asyncio
from datetime import datetime

from nodepool.contract.log import LogId
from nodepool.nats.log.api import leaders_message_since, request
from nodepool.nats.log.streams import STREAM, stream_info
from nodepool.nats.log.verification import verify_log
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import Denied, LogChanged
from nodepool.nats.wire.waiting import cancel

SUBJECT = f"$JS.API.STREAM.PURGE.{STREAM}"


async def trim(
    client: BusClient, log: LogId, floor: int, archived: int, archived_at: datetime | None
) -> int:
    """Remove every message before a position; return how many were removed.

    Another request for the same position, or an earlier one, removes nothing.

    archived, archived_at: the position and the time of the last message in the archive. A log that
        was set back since has no such message, and is not trimmed.

    Raises ValueError for a position that removes nothing or too much, LogChanged if the log is
    another one, Denied without the right, and ServerRefusal for a log that cannot be trimmed.
    """
    if floor <= 1:  # An early server removes everything if it is asked to keep all from 1 on.
        raise ValueError(f"the log is never trimmed at position {floor}")
    await verify_log(client, log, archived, archived_at)
    info = await stream_info(client, STREAM)
    if info is None or info.log != log:
        raise LogChanged(f"the log {log} is gone")
    if floor > min(archived + 1, info.last):
        text = f"the archive goes up to {archived}, and the log up to {info.last}"
        raise ValueError(f"the log is not trimmed at position {floor}: {text}")
    with client.await_denial(SUBJECT) as denied:
        purging = asyncio.create_task(request(client, SUBJECT, {"seq": floor}))
        try:
            await asyncio.wait((purging, denied), return_when=asyncio.FIRST_COMPLETED)
            if purging.done():
                return int(str(purging.result().get("purged", 0)))
        finally:
            await cancel(purging)
    raise Denied(0, SUBJECT)


async def first_since(client: BusClient, time: datetime, last: int) -> int:
    """Return the position of the first message since a time; after the last one for none."""
    entry = await leaders_message_since(client, STREAM, time)
    return last + 1 if entry is None else entry.position
