"""Pages of the events of a cluster up to a moment."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict

from gateway.host.pages import Extent, page_of, page_of_messages
from nodepool.client.bus import filters_of_events
from nodepool.client.events import object_events, regards
from nodepool.client.past.history import History
from nodepool.contract.cluster_events import subjects_of_events
from nodepool.contract.log import Entry
from nodepool.contract.queries import ANSWER_BYTES_MAX, Events, Messages


async def read_events(history: History, query: Events, org: str) -> bytes:
    """Return a page of the events of a cluster up to the moment."""
    start = after = query.after
    if query.since is not None:
        start = after = max(after, await history.first_since(query.since) - 1)
    items, size, at_end = list[bytes](), 0, True
    filters = filters_of_events(org, query.cluster, query.pool)
    async with aclosing(history.entries(after + 1, filters)) as batches:
        async for entries in batches:
            for entry in entries:
                if len(items) >= query.limit or size > ANSWER_BYTES_MAX // 2:
                    at_end = False
                    break
                after = entry.position
                for event in object_events(entry):
                    if regards(event, query.pool, query.node):
                        # The whole time: ages count from it to the second.
                        shown = {**asdict(event), "time": event.time.isoformat()}
                        items.append(json.dumps(shown).encode())
                        size += len(items[-1])
            if not at_end:
                break
    extent = Extent(history.extent.first, history.position)
    after = history.position if at_end else after
    return page_of(items, extent, start=start, after=after, at_end=at_end)


async def read_messages(history: History, query: Messages, org: str) -> bytes:
    """Return a page of the events of a cluster as they are in the log, up to the moment."""
    subjects = subjects_of_events(query.names, org, query.cluster, query.pool)
    start = query.after
    if query.since is not None:
        start = max(start, await history.first_since(query.since) - 1)
    if query.last:
        entries, at_end = await _newest(history, subjects), True
    else:
        entries, at_end = await _following(history, query, subjects, start)
    extent = Extent(history.extent.first, history.position)
    after = extent.end if at_end else entries[-1].position
    log = (history.extent.log, history.time)
    return page_of_messages(entries, log, extent, start=start, after=after, at_end=at_end)


async def _following(
    history: History, query: Messages, subjects: Sequence[str], start: int
) -> tuple[Sequence[Entry], bool]:
    """Return the first messages after a position, and whether there are no more."""
    found, size, names = list[Entry](), 0, frozenset(query.names)
    async with aclosing(history.entries(start + 1, subjects)) as batches:
        async for entries in batches:
            for entry in entries:
                if entry.subject.rpartition(".")[2] not in names:
                    continue
                if len(found) >= query.limit or size > ANSWER_BYTES_MAX // 2:
                    return found, False
                found.append(entry)
                size += len(entry.content)
    return found, True


async def _newest(history: History, subjects: Sequence[str]) -> Sequence[Entry]:
    """Return the newest message on each subject that has one, in their order."""
    found = dict[str, Entry]()
    async with aclosing(history.newest(1, subjects)) as batches:
        async for entries in batches:
            for entry in entries:
                found.setdefault(entry.subject.rpartition(".")[2], entry)
            if len(found) == len(subjects):
                break
    return sorted(found.values(), key=lambda each: each.position)
