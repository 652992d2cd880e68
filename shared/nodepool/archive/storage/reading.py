"""Reads an archive: which segments it has of a time, and their contents."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from nodepool.archive.chain import Head, faults_of, head_of_identity, head_of_manifest
from nodepool.archive.manifests import (
    Document,
    Identity,
    Manifest,
    Object,
    fault_of_content,
    read_document,
)
from nodepool.archive.names import IDENTITY, MANIFESTS, first_position, manifest_name
from nodepool.archive.storage.errors import ArchiveError, Damaged
from nodepool.archive.storage.store import Store

D = TypeVar("D", bound=Document)
AT_ONCE: Final = 16
"""How many manifests are asked for at once: a bucket takes some ten milliseconds for each."""


@dataclass(frozen=True, slots=True)
class Index:
    """The segments of an archive, by the position at which each begins.

    log: the identity of the log.
    first: where the archive begins.
    head: where it ends.
    firsts: where each segment begins, in order.
    """

    store: Store
    log: str
    first: int
    head: Head
    firsts: Sequence[int]

    async def segments(
        self, number: int = 0, until: datetime | None = None
    ) -> AsyncIterator[Manifest]:
        """Yield the segments in order, from a number on, that may hold messages up to a time.

        Raises ArchiveError where the chain is broken.
        """
        head: Head | None = None
        while number < len(self.firsts):
            names = [manifest_name(first) for first in self.firsts[number : number + AT_ONCE]]
            contents = await asyncio.gather(*map(self.store.get, names))
            for name, content in zip(names, contents, strict=True):
                manifest = _read(self.store, name, Manifest, content)
                for fault in () if head is None else faults_of(head, manifest, self.log):
                    raise ArchiveError(f"archive {self.store}: {name} {fault}{_SEE}")
                if until is not None and datetime.fromisoformat(manifest.began) > until:
                    return
                head = head_of_manifest(manifest, content or b"")
                yield manifest
            number += AT_ONCE

    def number_of(self, position: int) -> int:
        """Return the number of the segment that has a position, or of the one that would."""
        return max(bisect_right(self.firsts, position) - 1, 0)

    async def number_at(self, time: datetime) -> int:
        """Return the number of the first segment that ends at or after a time, by bisection."""
        low, high = 0, len(self.firsts)
        while low < high:
            middle = (low + high) // 2
            name = manifest_name(self.firsts[middle])
            manifest = _read(self.store, name, Manifest, await self.store.get(name))
            if datetime.fromisoformat(manifest.ended) >= time:
                high = middle
            else:
                low = middle + 1
        return low

    async def content(self, object: Object) -> bytes:
        """Return the content of an object; raise Damaged if it is not as it was stored."""
        content = await self.store.get(object.name)
        fault = "is missing" if content is None else fault_of_content(object, content)
        if content is None or fault:
            raise Damaged(f"archive {self.store}: {object.name} {fault}{_SEE}")
        return content


async def read_index(store: Store) -> Index:
    """Return which segments an archive has.

    Raises ArchiveError if the store holds no archive, or its end is damaged, and StoreError.
    """
    content = await store.get(IDENTITY)
    if content is None:
        raise ArchiveError(f"archive {store}: there is none: it has no {IDENTITY}")
    identity = _read(store, IDENTITY, Identity, content)
    names = [name async for name, _ in store.list(MANIFESTS)]
    firsts = sorted(first for name in names if (first := first_position(name)) is not None)
    head = head_of_identity(identity, content)
    if firsts:
        newest = manifest_name(firsts[-1])
        text = await store.get(newest) or b""
        head = head_of_manifest(_read(store, newest, Manifest, text), text)
    return Index(store, identity.log, identity.first, head, firsts)


_SEE: Final = "; see 'nodepool log verify'"


def _read(store: Store, name: str, kind: type[D], content: bytes | None) -> D:
    try:
        return read_document(kind, content or b"")
    except ValueError as error:
        raise ArchiveError(f"archive {store}: {name} {error}{_SEE}") from None
