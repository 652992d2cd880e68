"""Reads a part of the log, one message after the other, without a consumer."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from nodepool.contract.log import Entry, LogId
from nodepool.nats.log.api import leaders_message, leaders_message_since, leaders_next_message
from nodepool.nats.log.streams import STREAM, stream_info
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import HeadMissing, InDoubt

READS_MAX: Final = 500
"""The most messages of the log that are read for a page."""


class Page(NamedTuple):
    """Some messages of the log, in their order.

    log, end, time: the log, the position of its newest message, and when that was so.
    after: where the next page begins: all messages up to there were looked at.
    at_end: whether the log has no more.
    first: where the log begins; what lies before was trimmed.
    """

    entries: Sequence[Entry]
    log: LogId
    end: int
    time: datetime
    after: int
    at_end: bool
    first: int = 1

    def check_reaches(self, position: int) -> None:
        """Raise HeadMissing if the log no longer has all that follows a position."""
        if self.first > position + 1:
            text = f"the log {self.log} begins at position {self.first}"
            raise HeadMissing(f"trim gap: {text}, and what follows {position} is asked for")


async def read_page(
    client: BusClient,
    subjects: Sequence[str],
    names: Collection[str],
    *,
    after: int = 0,
    since: datetime | None = None,
    limit: int,
    size: int,
) -> Page:
    """Return the messages on some subjects that lie after a position, from the leader.

    names: the last tokens of the subjects of the messages to return.
    since: leave out what was stored before this time.
    limit, size: the most messages, and about the most bytes of all but the last one.

    Raises the errors of `nodepool.nats.log.api`, and InDoubt while there is no log.
    """
    info = await stream_info(client, STREAM)
    if info is None:
        raise InDoubt("there is no log")
    if since is not None:
        after = max(after, await position_before(client, since, info.last))
    following = partial(leaders_next_message, client, STREAM)
    found = [*await asyncio.gather(*(following(each, after + 1) for each in subjects))]
    entries, used, at_end = list[Entry](), 0, False
    for _ in range(READS_MAX):
        if len(entries) >= limit or used > size:
            break
        entry = min(filter(None, found), key=lambda each: each.position, default=None)
        # What is newer is left to the next page: a subject that had nothing has it by now, perhaps.
        if entry is None or entry.position > info.last:
            after, at_end = max(after, info.last), True
            break
        if entry.subject.rpartition(".")[2] in names:
            entries.append(entry)
            used += len(entry.content)
        after, at = entry.position, found.index(entry)
        found[at] = await following(subjects[at], after + 1)
    return Page(entries, info.log, info.last, info.time, after, at_end, info.first)


async def position_before(client: BusClient, since: datetime, end: int) -> int:
    """Return the position before the first message since a time; `end` if there is none."""
    first = await leaders_message_since(client, STREAM, since)
    return first.position - 1 if first is not None else end


async def newest_of(client: BusClient, subjects: Sequence[str]) -> Page:
    """Return the newest message on each subject that has one, as a page without a successor."""
    info = await stream_info(client, STREAM)
    if info is None:
        raise InDoubt("there is no log")
    found = await asyncio.gather(*(leaders_message(client, STREAM, each) for each in subjects))
    entries = sorted(filter(None, found), key=lambda each: each.position)
    end = max((each.position for each in entries), default=0)
    end = max(info.last, end)
    return Page(entries, info.log, end, info.time, end, at_end=True, first=info.first)
