"""Reads a whole archive back: every manifest, segment and snapshot set, each against its digest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from nodepool.archive.chain import Head, faults_of, head_of_identity, head_of_manifest
from nodepool.archive.manifests import (
    Identity,
    Manifest,
    Object,
    SnapshotSet,
    fault_of_content,
    read_document,
)
from nodepool.archive.names import (
    IDENTITY,
    MANIFESTS,
    SEGMENTS,
    SETS,
    first_position,
    manifest_name,
    period_of_set,
)
from nodepool.archive.storage.errors import ArchiveError
from nodepool.archive.storage.segments import count_rows
from nodepool.archive.storage.store import Store

FAULTS_MAX: Final = 100
"""The most faults that are named; further ones are only counted."""


@dataclass(slots=True)
class Report:
    """What was found in an archive.

    log: the identity of the log.
    first: the position at which the archive begins.
    head: the end of the chain.
    sound: up to which position the archive was read back without a fault.
    segments, messages, bytes: how many there are, and the size of the segments.
    sets: how many snapshot sets there are.
    unnamed: how many segments no manifest names; a crash leaves them, and they do no harm.
    faults: how many faults there are.
    named: the faults, each as one line that begins with the object; at most FAULTS_MAX.
    """

    log: str
    first: int
    head: Head
    sound: int
    segments: int = 0
    messages: int = 0
    bytes: int = 0
    sets: int = 0
    unnamed: int = 0
    faults: int = 0
    named: list[str] = field(default_factory=list)

    def note(self, name: str, fault: str) -> None:
        """Count a fault of an object."""
        self.faults += 1
        if len(self.named) < FAULTS_MAX:
            self.named.append(f"{name} {fault}")


async def verify(store: Store, progress: Callable[[Report], None] = lambda _report: None) -> Report:
    """Return what is found in an archive, after all of it was read.

    progress: called after each segment.
    Raises ArchiveError if the store holds no archive, and StoreError.
    """
    content = await store.get(IDENTITY)
    if content is None:
        raise ArchiveError(f"archive {store}: there is none: it has no {IDENTITY}")
    try:
        identity = read_document(Identity, content)
    except ValueError as error:
        raise ArchiveError(f"archive {store}: {IDENTITY} {error}") from None
    head = head_of_identity(identity, content)
    report = Report(identity.log, identity.first, head, head.last)
    # Before the manifests: an archiver may add to the archive meanwhile.
    sets = [name async for name, _ in store.list(SETS) if period_of_set(name) is not None]
    unnamed = {name async for name, _ in store.list(SEGMENTS)}
    async for manifest in _follow(store, report):
        unnamed.discard(manifest.object.name)
        await _check_segment(store, report, manifest)
        report.sound = report.sound if report.faults else manifest.last
        progress(report)
    report.unnamed = len(unnamed)
    for name in sorted(sets):
        await _check_set(store, report, name)
    return report


async def _follow(store: Store, report: Report) -> AsyncIterator[Manifest]:
    """Yield the manifests in order; note where they are no chain."""
    firsts = [first async for name, _ in store.list(MANIFESTS) if (first := first_position(name))]
    for first in sorted(firsts):
        name = manifest_name(first)
        content = await store.get(name) or b""
        try:
            manifest = read_document(Manifest, content)
        except ValueError as error:
            report.note(name, str(error))
            continue
        if manifest.first != first:
            report.note(name, f"is the manifest of the segment that begins at {manifest.first}")
        for fault in faults_of(report.head, manifest, report.log):
            report.note(name, fault)
        report.head = head_of_manifest(manifest, content)
        yield manifest


async def _check_segment(store: Store, report: Report, manifest: Manifest) -> None:
    object = manifest.object
    content = await _checked(store, report, object)
    report.segments += 1
    report.bytes += object.bytes
    if content is None:
        return
    try:
        count = await asyncio.to_thread(count_rows, content, manifest.first)
    except ValueError as error:
        report.note(object.name, str(error))
        return
    if count != manifest.count:
        report.note(object.name, f"has {count} messages, and its manifest counts {manifest.count}")
    report.messages += count


async def _check_set(store: Store, report: Report, name: str) -> None:
    report.sets += 1
    try:
        found = read_document(SnapshotSet, await store.get(name) or b"")
    except ValueError as error:
        report.note(name, str(error))
        return
    if found.log != report.log:
        report.note(name, f"is of the log {found.log}, and the archive holds {report.log}")
    if found.newest > report.head.last:
        report.note(name, f"goes up to {found.newest}, and the segments end at {report.head.last}")
    for snapshot in found.snapshots.values():
        for part in snapshot.parts:
            await _checked(store, report, part)


async def _checked(store: Store, report: Report, object: Object) -> bytes | None:
    """Return the content of an object; note its fault and return None if it has one."""
    content = await store.get(object.name)
    fault = "is missing" if content is None else fault_of_content(object, content)
    if fault:
        report.note(object.name, fault)
        return None
    return content
