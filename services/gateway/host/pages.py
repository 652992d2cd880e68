"""What the pages of events and of commands have in common, in the present and in the past."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from nodepool.contract.log import Entry, LogId


class Extent(NamedTuple):
    """Where the log begins and ends: the positions of its oldest and of its newest message."""

    first: int
    end: int


def page_of(items: Sequence[bytes], log: Extent, *, start: int, after: int, at_end: bool) -> bytes:
    """Return a page.

    start: the position after which it begins; earlier messages may have been trimmed.
    after: where the next page begins.
    at_end: whether the log has no more.
    """
    is_last = b"true" if at_end else b"false"
    page, begin = b",".join(items), b'{"first":%d,"position":%d,' % log
    if start < log.first > 1:
        begin += b'"trimmed":true,'
    return begin + b'"after":%d,"atEnd":%b,"items":[%b]}' % (after, is_last, page)


def page_of_messages(
    entries: Iterable[Entry],
    log: tuple[LogId, datetime],
    extent: Extent,
    *,
    start: int,
    after: int,
    at_end: bool,
) -> bytes:
    """Return a page of events as they are in the log.

    log: which one it is, and when it ended where the extent ends. The rest is as in `page_of`.
    """
    items = [item for each in entries if (item := _encode_message(each)) is not None]
    answer = page_of(items, extent, start=start, after=after, at_end=at_end)
    about = {"log": log[0], "time": log[1].isoformat()}
    return json.dumps(about).encode()[:-1] + b"," + answer[1:]


def _encode_message(entry: Entry) -> bytes | None:
    """Return an event of the log as JSON; None for what no service can have said."""
    try:
        json.loads(entry.content.decode())
    except (ValueError, RecursionError):
        return None
    time = entry.time.isoformat()
    place = {"position": entry.position, "time": time, "subject": entry.subject}
    return json.dumps(place).encode()[:-1] + b',"event":%b}' % entry.content
