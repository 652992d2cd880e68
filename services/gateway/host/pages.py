"""What the pages of events and of commands have in common."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection

READS_MAX: Final = 500
"""The most messages of the log that are read for a page."""


async def position_before(connection: Connection, since: datetime, end: int) -> int:
    """Return the position before the first message since a time; `end` if there is none."""
    first = await api.leaders_message_since(connection, STREAM, since)
    return first.position - 1 if first is not None else end


def page_of(items: Sequence[bytes], *, end: int, after: int, at_end: bool) -> bytes:
    """Return a page.

    end: the position of the newest message of the log.
    after: where the next page begins.
    at_end: whether the log has no more.
    """
    is_last = b"true" if at_end else b"false"
    page = b",".join(items)
    return b'{"position":%d,"after":%d,"atEnd":%b,"items":[%b]}' % (end, after, is_last, page)
