"""An archive that is only read: any part of its messages, and its snapshots.

Every object is checked against the digest that its manifest names, and every manifest against the
one before it.
"""

import asyncio
import zlib
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final, TypeVar

from nodepool.archive.chain import faults_of, head_of_identity, head_of_manifest
from nodepool.archive.manifests import (
    Document,
    Identity,
    Manifest,
    Object,
    Snapshot,
    SnapshotSet,
    fault_of_content,
    read_document,
)
from nodepool.archive.names import (
    IDENTITY,
    MANIFESTS,
    SETS,
    first_position,
    manifest_name,
    period_of_set,
)
from nodepool.archive.storage.ahead import ahead
from nodepool.archive.storage.errors import ArchiveError, Damaged
from nodepool.archive.storage.store import Store
from nodepool.contract.log import Entry
from nodepool.engine.chunks import ChunkLoader
from nodepool.engine.folded import Folded
from nodepool.service import I, O, S, Service

D = TypeVar("D", bound=Document)
R = TypeVar("R")
CHUNK_BYTES_MAX: Final = 1 << 20
"""The most bytes of a chunk of a snapshot; services store a quarter of that."""


class Records:
    """The archive in a store, as it was when it was opened.

    log: the identity of its log.
    first: the position at which it begins.
    end: the manifest of its last segment; None if it has no segment.
    """

    def __init__(self, store: Store, identity: Identity, head: str, firsts: Sequence[int]) -> None:
        """`head`: the digest of the identity; `firsts`: where the segments begin, in order."""
        self.store = store
        self.log, self.first = identity.log, identity.first
        self.end: Manifest | None = None
        self._head = head
        self._firsts = firsts
        self._sets: Sequence[str] | None = None
        self._read: dict[int, tuple[Manifest, bytes]] = {}

    @classmethod
    async def open(cls, store: Store) -> "Records":
        """Return the archive; raise ArchiveError if the store holds none, and StoreError."""
        content = await store.get(IDENTITY)
        if content is None:
            raise ArchiveError(f"archive {store}: there is none: it has no {IDENTITY}")
        identity = _document(store, IDENTITY, Identity, content)
        names = [name async for name, _ in store.list(MANIFESTS)]
        firsts = sorted(first for name in names if (first := first_position(name)) is not None)
        records = cls(store, identity, head_of_identity(identity, content).sha256, firsts)
        records.end = await records._manifest(firsts[-1]) if firsts else None
        return records

    @property
    def last(self) -> int:
        """The position of the last message; the one before `first` if there is none."""
        return self.end.last if self.end is not None else self.first - 1

    async def _manifest(self, first: int) -> Manifest:
        if first not in self._read:
            name = manifest_name(first)
            content = await self.store.get(name) or b""
            manifest = _document(self.store, name, Manifest, content)
            if manifest.first != first or manifest.log != self.log:
                raise self._damaged(f"{name} is the manifest of another segment or log")
            self._read[first] = manifest, content
        return self._read[first][0]

    def _damaged(self, text: str) -> Damaged:
        return Damaged(f"archive {self.store}: {text}; see 'nodepool log verify'")

    async def manifest_of(self, position: int) -> Manifest:
        """Return the manifest of the segment with a position, which the archive must hold."""
        assert self.first <= position <= self.last, "it lies in the archive"
        return await self._manifest(self._firsts[bisect_right(self._firsts, position) - 1])

    async def position_before(self, time: datetime) -> int:
        """Return the position of the last message that was stored at a time or before it.

        It lies before `first` if there is none.
        """
        low, high = 0, len(self._firsts)
        while low < high:
            middle = (low + high) // 2
            manifest = await self._manifest(self._firsts[middle])
            if datetime.fromisoformat(manifest.began) <= time:
                low = middle + 1
            else:
                high = middle
        if not low:
            return self.first - 1
        manifest = await self._manifest(self._firsts[low - 1])
        if datetime.fromisoformat(manifest.ended) <= time:
            return manifest.last
        return manifest.first + bisect_right(await self._times(manifest), time) - 1

    async def time_of(self, position: int) -> datetime:
        """Return when the log stored the message at a position, which the archive must hold."""
        manifest = await self.manifest_of(position)
        return (await self._times(manifest))[position - manifest.first]

    async def entries(
        self, first: int, last: int, wants: Callable[[str], bool]
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the messages from a position to another, some at a time.

        wants: says for a subject whether its messages are wanted.
        Raises ArchiveError if a message of these is missing or damaged, and StoreError.
        """

        async def read(manifest: Manifest) -> Sequence[Entry]:
            return await self._entries(manifest, wants, first, last)

        async with aclosing(self.segments(first, last, read)) as found:
            async for entries in found:
                yield entries

    async def segments(
        self, first: int, last: int, use: Callable[[Manifest], Awaitable[R]]
    ) -> AsyncGenerator[R, None]:
        """Yield what is made of each segment with messages from a position to another, in order.

        use: makes something of a segment, of some segments at the same time.
        Raises ArchiveError if a segment is missing, and what `use` raises.
        """
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return

        async def make(begin: int) -> tuple[Manifest, R]:
            manifest = await self._manifest(begin)
            return manifest, await use(manifest)

        before: int | None = None
        end = first - 1
        async with aclosing(ahead(map(make, self._begins(first, last)))) as made:
            async for manifest, result in made:
                self._check_chain(before, manifest)
                before, end = manifest.first, manifest.last
                if end >= first:
                    yield result
        if end < last:
            raise self._damaged(f"positions {max(end + 1, first)} to {last} are missing")

    async def newest(
        self, last: int, first: int, wants: Callable[[str], bool]
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the messages from a position back to another: the newest segment comes first.

        The messages of each segment are in the order of the log.
        """
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return

        async def read(begin: int) -> Sequence[Entry]:
            return await self._entries(await self._manifest(begin), wants, first, last)

        async with aclosing(ahead(map(read, reversed(self._begins(first, last))))) as found:
            async for entries in found:
                yield entries

    def _begins(self, first: int, last: int) -> Sequence[int]:
        """Return where the segments begin that hold the messages from a position to another."""
        low, high = (bisect_right(self._firsts, each) for each in (first, last))
        return self._firsts[low - 1 : high]

    def _check_chain(self, before: int | None, manifest: Manifest) -> None:
        """Raise Damaged unless a manifest follows that of the segment that begins at `before`."""
        if before is not None:
            head = head_of_manifest(*self._read[before])
        elif manifest.first == self.first:
            head = head_of_identity(Identity(log=self.log, first=self.first), b"")
            head = head._replace(sha256=self._head)
        else:
            return
        for fault in faults_of(head, manifest, self.log):
            raise self._damaged(f"{manifest_name(manifest.first)} {fault}")

    # Parquet is imported once a segment is read: whoever has no archive does not need it.

    async def _times(self, manifest: Manifest) -> Sequence[datetime]:
        from nodepool.archive.storage.segments import read_times

        return await self._parse(manifest, read_times)

    async def _entries(
        self, manifest: Manifest, wants: Callable[[str], bool], first: int, last: int
    ) -> Sequence[Entry]:
        from nodepool.archive.storage.segments import read_entries

        return await self._parse(manifest, read_entries, wants, first, last)

    async def _parse(self, manifest: Manifest, read: Callable[..., R], *more: object) -> R:
        content = await self.content(manifest.object)
        try:
            return await asyncio.to_thread(read, content, *more)
        except ValueError as error:
            raise self._damaged(f"{manifest.object.name} {error}") from None

    async def content(self, object: Object) -> bytes:
        """Return the content of an object; raise Damaged if it is not as it was stored."""
        content = await self.store.get(object.name)
        fault = "is missing" if content is None else fault_of_content(object, content)
        if content is None or fault:
            raise self._damaged(f"{object.name} {fault}")
        return content

    async def newest_set(self, position: int, services: Collection[str]) -> SnapshotSet | None:
        """Return the newest set in which no snapshot of these services is of later than a position.

        None if there is none that has a snapshot of each of them.
        """
        if self._sets is None:
            listed = [name async for name, _ in self.store.list(SETS)]
            self._sets = sorted(name for name in listed if period_of_set(name) is not None)
        low, high = 0, len(self._sets)
        newest: SnapshotSet | None = None
        while low < high:  # In a later set, no snapshot is older.
            middle = (low + high) // 2
            name = self._sets[middle]
            found = _document(self.store, name, SnapshotSet, await self.store.get(name) or b"")
            own = [found.snapshots[each] for each in services if each in found.snapshots]
            if all(each.expected_sequence <= position for each in own):
                low = middle + 1
                newest = found if len(own) == len(services) and found.log == self.log else newest
            else:
                high = middle
        return newest

    async def chunks(self, snapshot: Snapshot) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a snapshot as the service has stored them, compressed."""
        for part in snapshot.parts:
            for chunk, _ in self._split(part, await self.content(part)):
                yield chunk

    async def load(self, service: Service[S, I, O], snapshot: Snapshot) -> Folded[S]:
        """Return what a snapshot makes; raise ValueError if this release cannot read it."""
        loader = ChunkLoader(type(service.initial))
        for part in snapshot.parts:
            for _, chunk in self._split(part, await self.content(part)):
                loader.add(chunk)
            await asyncio.sleep(0)
        return loader.build(snapshot.bytes, snapshot.sha256)

    def _split(self, part: Object, content: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield each chunk of a part, as it is stored and before compression."""
        while content:
            decompression = zlib.decompressobj()
            try:
                chunk = decompression.decompress(content, CHUNK_BYTES_MAX)
            except zlib.error as error:
                raise self._damaged(f"{part.name} cannot be decompressed: {error}") from None
            if not decompression.eof:
                raise self._damaged(f"{part.name} has a chunk that is cut short or too large")
            rest = decompression.unused_data
            yield content[: len(content) - len(rest)], chunk
            content = rest


def _document(store: Store, name: str, kind: type[D], content: bytes) -> D:
    try:
        return read_document(kind, content)
    except ValueError as error:
        raise Damaged(f"archive {store}: {name} {error}; see 'nodepool log verify'") from None
