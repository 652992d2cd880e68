"""The whole log: what its archive holds, and what only the bus has, because it is not archived yet.

Whoever can read an archive, or the log itself, sees all organisations.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodepool.archive.manifests import Manifest, Snapshot, SnapshotSet, read_document
from nodepool.archive.names import SEGMENTS, SETS, period_of_set
from nodepool.archive.storage.errors import ArchiveError, StoreError
from nodepool.archive.storage.reading import Index, read_index
from nodepool.archive.storage.store import Store
from nodepool.client.errors import ClientError, Unreachable, translate_errors
from nodepool.client.session import Session
from nodepool.contract.log import Entry
from nodepool.engine.snapshot import Loader
from nodepool.nats.log.streams import STREAM, stream_info
from nodepool.nats.objects.snapshots import CHUNK_BYTES
from nodepool.service import S

if TYPE_CHECKING:
    from nodepool.archive.storage.sql import Answer

FETCHED_AT_ONCE: Final = 4
"""How many segments are fetched from a bucket at once; each has some megabytes."""
INTERRUPT_S: Final = 0.1
"""How often a question that is to end is told so, in seconds."""
EXTRA: Final = ("duckdb", "obstore", "pyarrow")
"""The packages of the extra `archive`."""
TAIL_MAX: Final = 1_000_000
"""The most messages that are read from the bus into files, compressed in memory one day a time."""


@contextmanager
def archive_errors() -> Iterator[None]:
    """Turn the errors of an archive that are raised inside the context into those of a client.

    The lack of a package is one of them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        text = f"this needs the package {error.name}: pip install 'nodepool[archive]'"
        raise ClientError(text) from None
    except StoreError as error:
        raise Unreachable(str(error)) from None
    except ArchiveError as error:
        raise ClientError(str(error)) from None


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Index | None]:
    """Open an archive for the time of the context; None if the URL is empty.

    Raises ClientError or Unreachable, also for what happens inside the context.
    """
    if not url:
        yield None
        return
    with archive_errors():
        store = Store(url)
        try:
            yield await read_index(store)
        finally:
            await store.close()


async def read_tail(
    session: Session, index: Index | None, most: int | None = None
) -> AsyncIterator[Sequence[Entry]]:
    """Yield the messages of the bus that are not in the archive, in order, up to the newest.

    most: how many are read at most.
    Raises ClientError if the log is not the one that is archived, if messages are neither there
    nor in the archive, or if there are more of them.
    """
    session.require_bus("read the log itself")
    await session.last_position()
    with translate_errors(session.url):
        info = await stream_info(session.connection, STREAM)
    if info is None:
        raise Unreachable("the log is gone")
    start = 1 if index is None else index.head.last + 1
    if index is not None and info.log != index.log:
        text = f"it holds the log {index.log}, and the bus has the log {info.log}"
        raise ClientError(f"archive {index.store}: {text}; name the archive of this log")
    if start > info.last + 1:
        text = f"the archive goes up to position {start - 1}, and the log to {info.last} only"
        raise ClientError(f"{text}: the log was set back; see deploy/OPERATING.md")
    if start < info.first <= info.last:
        text = f"positions {start} to {info.first - 1} are not on the bus any more"
        fix = "name the archive with --archive" if index is None else "run the archiver"
        raise ClientError(f"{text}, nor in an archive that was named: {fix}")
    if most is not None and info.last - start >= most:
        text = f"{info.last - start + 1} messages are in no archive that was named"
        raise ClientError(f"{text}, and at most {most} can be: name one, or see its archiver")
    if start > info.last:
        return
    async with session.reader(STREAM, [], start=start) as reader:
        position = start - 1
        while position < info.last:
            entries = await session.read(reader, endless=False)
            position = entries[-1].position
            yield entries


async def read_entries(
    index: Index | None,
    session: Session | None,
    start: int,
    until: datetime,
    types: Collection[str],
) -> AsyncIterator[Sequence[Entry]]:
    """Yield the messages of these types in order, from a position on, up to a time at least.

    One segment is in memory at a time. Messages of other types may be among those of the bus.
    session: where to read what is not archived yet; None to end with the archive.
    """
    from nodepool.archive.storage import segments

    if index is not None:
        async for manifest in index.segments(index.number_of(start), until):
            content = await index.content(manifest.object)
            blocks = segments.read_types(content, types)
            while block := await asyncio.to_thread(next, blocks, None):
                yield [entry for entry in block if entry.position >= start]
    if session is not None and (index is None or not _is_covered(index, until)):
        async for entries in read_tail(session, index):
            yield [entry for entry in entries if entry.position >= start]


async def end_of(index: Index | None, session: Session | None) -> datetime:
    """Return up to which time there is anything: now, or the end of the archive without a bus."""
    if session is not None:
        session.require_bus("read the log itself")
        with translate_errors(session.url):
            info = await stream_info(session.connection, STREAM)
        if info is not None:
            return info.time
    ended = index.head.ended if index is not None else ""
    return datetime.fromisoformat(ended) if ended else datetime.min.replace(tzinfo=UTC)


async def snapshot_sets(index: Index) -> AsyncIterator[SnapshotSet]:
    """Yield the snapshot sets of an archive that can be read, the newest first."""
    names = [name async for name, _ in index.store.list(SETS) if period_of_set(name) is not None]
    for name in sorted(names, reverse=True):
        with suppress(ValueError):
            found = read_document(SnapshotSet, await index.store.get(name) or b"")
            if found.log == index.log:
                yield found


async def load_state(index: Index, snapshot: Snapshot, kind: type[S]) -> S:
    """Return the state that a snapshot holds; raise ValueError if it is of another shape.

    Raises Damaged if a part is missing or damaged.
    """
    loader, rest = Loader(kind), b""
    for part in snapshot.parts:
        packed = await index.content(part)
        while packed:
            decompression = zlib.decompressobj()
            chunk = decompression.decompress(packed, CHUNK_BYTES)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                loader.add(line)
            if not decompression.eof:
                raise ValueError(f"a chunk of {part.name} is cut short or too large")
            packed = decompression.unused_data
    return loader.build_folded().state


async def lay_out(
    folder: Path,
    index: Index | None,
    session: Session | None,
    since: datetime | None,
    until: datetime | None,
) -> list[Path]:
    """Fill a folder for `Database`; return the folders to which it has links.

    session: what is not archived yet is read there; None if it is to be left out.
    since, until: which messages are of interest; others may be there too.
    """
    if index is not None:
        found: list[Manifest] = []
        number = 0 if since is None else await index.number_at(since)
        async for manifest in index.segments(number, until):
            found.append(manifest)
            if len(found) == FETCHED_AT_ONCE:
                await asyncio.gather(*(_place(folder, index, each) for each in found))
                found.clear()
        await asyncio.gather(*(_place(folder, index, each) for each in found))
    if session is not None and (index is None or not _is_covered(index, until)):
        await _write_tail(folder, index, session)
    archive = index.store.folder if index is not None else None
    return [archive / SEGMENTS] if archive is not None else []


def _is_covered(index: Index, until: datetime | None) -> bool:
    """Return whether the archive has all messages up to a time."""
    ended = index.head.ended
    return until is not None and bool(ended) and datetime.fromisoformat(ended) >= until


async def _place(folder: Path, index: Index, manifest: Manifest) -> None:
    from nodepool.archive.storage.sql import place_of

    place, archive = place_of(folder, manifest), index.store.folder
    place.parent.mkdir(exist_ok=True)
    if archive is None:
        content = await index.content(manifest.object)
        await asyncio.to_thread(place.write_bytes, content)
    else:
        place.symlink_to(archive / manifest.object.name)


async def _write_tail(folder: Path, index: Index | None, session: Session) -> None:
    """Write what is not archived as segments, each of one day."""
    from nodepool.archive.storage.segments import Segment
    from nodepool.archive.storage.sql import place_of

    segment = Segment()

    def close() -> None:
        manifest, content = segment.close("tail", "0" * 64)
        place = place_of(folder, manifest)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)

    async for entries in read_tail(session, index, TAIL_MAX):
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
    with archive_errors():
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
