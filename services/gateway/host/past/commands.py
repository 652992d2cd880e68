"""Pages of the commands of an organisation up to a moment."""

from contextlib import aclosing
from dataclasses import replace

from gateway.host.pages import Extent, page_of
from nodepool.client.audit import (
    CommandRecord,
    Place,
    command_record,
    encode_record,
    filters_of,
    outcome_of,
)
from nodepool.client.past.backend import PastBackend
from nodepool.client.past.history import History
from nodepool.contract.queries import Audit


async def read_commands(history: History, query: Audit, org: str, backend: PastBackend) -> bytes:
    """Return a page of commands up to the moment, each with the outcome that it had by then."""
    extent = Extent(history.extent.first, history.position)
    if query.last:
        found = await backend.find_last_change(query.pool)
        items = [encode_record(found)] if found is not None else []
        return page_of(items, extent, start=0, after=extent.end, at_end=True)
    start = query.after
    if query.since is not None:
        start = max(start, await history.first_since(query.since) - 1)
    known, at_end = await _read(history, Place(org, query.cluster, query.pool), start, query.limit)
    items = [encode_record(record) for record in known.values()]
    after = extent.end if at_end else max(known)
    return page_of(items, extent, start=start, after=after, at_end=at_end)


async def _read(
    history: History, place: Place, start: int, limit: int
) -> tuple[dict[int, CommandRecord], bool]:
    """Return the first commands after a position, and whether there are no more."""
    known, is_all = dict[int, CommandRecord](), True
    async with aclosing(history.entries(start + 1, filters_of(place))) as batches:
        async for entries in batches:
            for entry in entries:
                record = command_record(entry)
                if record is not None and len(known) < limit:
                    known[record.position] = record
                elif record is not None:
                    is_all = False
                elif (answer := outcome_of(entry)) is not None:
                    position, outcome = answer
                    if position in known and known[position].outcome is None:
                        known[position] = replace(known[position], outcome=outcome)
            if not is_all and all(each.outcome for each in known.values()):
                break
    return known, is_all
