"""The whole log in SQL: what its archive holds, and what only the bus has so far.

Whoever can read an archive, or the log itself, sees all organisations.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodepool.archive.manifests import Manifest
from nodepool.archive.names import SEGMENTS
from nodepool.archive.storage.records import Records
from nodepool.archive.storage.store import Store
from nodepool.client.errors import ClientError, translate_archive_errors
from nodepool.client.past.history import History, is_archived
from nodepool.client.session import Session

if TYPE_CHECKING:
    from nodepool.archive.storage.sql import Answer

INTERRUPT_S: Final = 0.1
"""How often a question that is to end is told so, in seconds."""
TAIL_MAX: Final = 1_000_000
"""The most messages that are read from the bus into files, compressed in memory one day a time."""


@asynccontextmanager
async def opened(
    archive: str, session: Session | None = None, until: datetime | None = None
) -> AsyncIterator[History]:
    """Open the log for the time of the context.

    archive: its URL; empty for none.
    session: what is not archived yet is read there; None if it is to be left out.
    until: up to when it is of interest; None for all of it.
    Raises ClientError, also for what an archive raises inside the context.
    """
    with translate_archive_errors():
        store = Store(archive) if archive else None
        try:
            records = await Records.open(store) if store is not None else None
            is_covered = records is not None and until is not None and is_archived(records, until)
            yield await History.open(records, None if is_covered else session)
        finally:
            if store is not None:
                await store.close()


async def lay_out(
    folder: Path, history: History, since: datetime | None = None, until: datetime | None = None
) -> list[Path]:
    """Fill a folder for `Database`; return the folders to which it has links.

    since, until: which messages are of interest; others may be there too.
    """
    records, first = history.records, 1
    if records is None and history.extent.first > 1:
        text = f"positions 1 to {history.extent.first - 1} are not on the bus any more"
        raise ClientError(f"{text}: name the archive with --archive")
    if since is not None:
        first = await history.first_since(since)
    if until is not None:
        history.position = await history.position_before(until)
    if records is not None:
        place = partial(_place, folder, records)
        async with aclosing(records.segments(first, history.position, place)) as placed:
            async for _ in placed:
                pass
    await _write_tail(folder, history, first)
    archive = records.store.folder if records is not None else None
    return [archive / SEGMENTS] if archive is not None else []


async def _place(folder: Path, records: Records, manifest: Manifest) -> None:
    from nodepool.archive.storage.sql import place_of

    place, archive = place_of(folder, manifest), records.store.folder
    place.parent.mkdir(exist_ok=True)
    if archive is None:
        content = await records.content(manifest.object)
        await asyncio.to_thread(place.write_bytes, content)
    else:
        place.symlink_to(archive / manifest.object.name)


async def _write_tail(folder: Path, history: History, first: int) -> None:
    """Write what is not archived as segments, each of one day; raise ClientError for too much."""
    count = history.position - max(history.archived, first - 1)
    if history.live is None or count <= 0:
        return
    if count > TAIL_MAX:
        text = f"{count} messages are in no archive that was named, and at most {TAIL_MAX} can be"
        raise ClientError(f"{text}: name one, or see its archiver")
    from nodepool.archive.storage.segments import Segment
    from nodepool.archive.storage.sql import place_of

    segment = Segment()

    def close() -> None:
        manifest, content = segment.close("tail", "0" * 64)
        place = place_of(folder, manifest)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)

    async with aclosing(history.recent(first)) as batches:
        async for entries in batches:
            for entry in entries:
                if segment.day not in (None, entry.time.date()):
                    close()
                    segment = Segment()
                segment.add(entry)
    if segment.count:
        close()


async def ask(
    folder: Path,
    others: Sequence[Path],
    sql: str,
    most: int,
    window: tuple[datetime | None, datetime | None],
) -> "Answer":
    """Return the answer of a `Database`; the question ends with this coroutine."""
    with translate_archive_errors():
        from nodepool.archive.storage.sql import Database

        database = Database(folder, others, *window)
        asking = asyncio.ensure_future(asyncio.to_thread(database.ask, sql, most))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            while not asking.done():  # It may not have begun yet.
                database.interrupt()
                await asyncio.wait([asking], timeout=INTERRUPT_S)
            asking.exception()
            raise
