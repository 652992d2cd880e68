"""An archive in a store: its identity, and the end of its chain, after which segments are added."""

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
from nodepool.archive.names import (
    IDENTITY,
    MANIFESTS,
    SEGMENTS,
    SNAPSHOTS,
    first_position,
    manifest_name,
    other_name,
)
from nodepool.archive.storage.errors import ArchiveError, Damaged
from nodepool.archive.storage.store import Store

D = TypeVar("D", bound=Document)
NAMES_MAX: Final = 3
"""Under how many names an object is tried to be stored."""


class Archive:
    """The archive of one log, as one program sees it; any number of programs may add to it.

    log: the identity of the log.
    head: the end of the chain, as far as it is known.
    segments: how many segments there are.
    bytes: the size of all segments, and of the parts of snapshots.
    """

    def __init__(self, store: Store, log: str, head: Head) -> None:
        self.store = store
        self.log = log
        self.head = head
        self.segments = self.bytes = 0

    @classmethod
    async def open(cls, store: Store, log: str, first: int) -> "Archive":
        """Return the archive of a log; make it if the store holds none.

        first: where the log begins.
        Raises ArchiveError if the store holds the archive of another log or its end is damaged, and
        StoreError.
        """
        content = Identity(log=log, first=first).to_bytes()
        if not await store.create(IDENTITY, content):
            content = await store.get(IDENTITY) or b""
        identity = _read(store, IDENTITY, Identity, content)
        if identity.log != log:
            text = f"it holds the log {identity.log}, and the bus has the log {log}"
            raise ArchiveError(f"archive {store}: {text}; name another place for this one")
        archive = cls(store, log, head_of_identity(identity, content))
        await archive._find_end()
        return archive

    async def _find_end(self) -> None:
        newest = ""
        async for name, _ in self.store.list(MANIFESTS):
            if first_position(name) is not None:
                self.segments += 1
                newest = max(newest, name)
        for folder in (SEGMENTS, SNAPSHOTS):
            async for _, size in self.store.list(folder):
                self.bytes += size
        if newest:
            content = await self.store.get(newest) or b""
            manifest = _read(self.store, newest, Manifest, content)
            if manifest.log != self.log:
                text = f"{newest} is of the log {manifest.log}, and the archive holds {self.log}"
                raise ArchiveError(f"archive {self.store}: {text}; see 'nodepool log verify'")
            self.head = head_of_manifest(manifest, content)

    async def catch_up(self) -> bool:
        """Follow the chain to its end; return whether others have added to it.

        Raises ArchiveError if what they have added does not continue the chain.
        """
        before = self.head
        while True:
            name = manifest_name(self.head.last + 1)
            content = await self.store.get(name)
            if content is None:
                return self.head != before
            manifest = _read(self.store, name, Manifest, content)
            for fault in faults_of(self.head, manifest, self.log):
                text = f"{name} {fault}; see 'nodepool log verify'"
                raise ArchiveError(f"archive {self.store}: {text}")
            self._count(manifest, content)

    async def append(self, manifest: Manifest, content: bytes) -> Manifest | None:
        """Store a segment at the end of the chain; return its manifest as it is stored.

        Returns None if another program came first; then the head is what that program has stored.
        It is safe to try again after any error.
        """
        if await self.catch_up():
            return None
        stored = await self.put(manifest.object, content)
        manifest = manifest.model_copy(update={"object": stored})
        name, text = manifest_name(manifest.first), manifest.to_bytes()
        # A store that has lost its answer to a first attempt says that the object is there.
        if await self.store.create(name, text) or await self.store.get(name) == text:
            self._count(manifest, text)
            return manifest
        await self.catch_up()
        return None

    def _count(self, manifest: Manifest, content: bytes) -> None:
        self.head = head_of_manifest(manifest, content)
        self.segments += 1
        self.bytes += manifest.object.bytes

    async def put(self, object: Object, content: bytes) -> Object:
        """Store an object whose name says its content; return it as it is stored.

        If there is an object of this name already, such as after a crash, it is adopted. If that
        has another content, such as half of an upload, the object is stored under another name.
        Raises ArchiveError if that fails too.
        """
        for number in range(NAMES_MAX):
            named = object.model_copy(update={"name": other_name(object.name, number)})
            if await self.store.create(named.name, content) or not await self._fault_of(named):
                return named
        raise ArchiveError(f"archive {self.store}: {object.name} {await self._fault_of(object)}")

    async def read_back(self, object: Object) -> None:
        """Raise Damaged unless the store returns an object as it was stored."""
        if fault := await self._fault_of(object):
            raise Damaged(f"archive {self.store}: {object.name} {fault}: look at the store")

    async def _fault_of(self, object: Object) -> str:
        content = await self.store.get(object.name)
        return "is missing" if content is None else fault_of_content(object, content)


def _read(store: Store, name: str, kind: type[D], content: bytes) -> D:
    try:
        return read_document(kind, content)
    except ValueError as error:
        raise ArchiveError(f"archive {store}: {name} {error}; see 'nodepool log verify'") from None
