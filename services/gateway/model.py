"""The objects of the read model in memory: one object, pages, and what has changed; no I/O."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from nodepool.contract.buckets import BUCKETS, Bucket

GRAVE_TIME: Final = timedelta(minutes=59)
"""How long a deletion is remembered; the bus forgets it a minute later."""
GRAVES_MAX: Final = 100_000
"""How many deletions are remembered; the oldest is forgotten first."""
SCAN_MAX: Final = 1_000
"""The most objects that are compared with a selector for one answer."""
Includes = Callable[[bytes], bool]


class Held(NamedTuple):
    """An object as it was last written.

    revision: the sequence of this write in the bucket.
    version: the position of the log at which the object changed last.
    content: the object as JSON; empty if it is deleted.
    group: what the object is listed by: the NodePool of a Node, the type of a machine.
    """

    revision: int
    version: int
    content: bytes
    group: str = ""


class Page(NamedTuple):
    """Some objects in the order of their keys; `end` is where the next page begins, or empty."""

    objects: Sequence[Held]
    end: str


class Change(NamedTuple):
    """What an object is now; its content is empty if it is deleted or not selected any more."""

    key: str
    held: Held


class Changes(NamedTuple):
    """What has changed, oldest first, and the revision up to which the changes are complete."""

    items: Sequence[Change]
    revision: int


class Shelf:
    """The objects of one owner in one bucket."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self._keys: list[str] = []
        # The order of a dict is that of insertion, and each write is inserted again.
        self._by_revision: dict[str, None] = {}
        self._groups: dict[str, dict[str, None]] = {}

    def put(self, key: str, held: Held) -> None:
        """Store a write."""
        before = self.held.get(key)
        was_there = before is not None and bool(before.content)
        self._regroup(key, before, held)
        if held.content and not was_there:
            insort(self._keys, key)
        elif was_there and not held.content:
            del self._keys[bisect_left(self._keys, key)]
        self.held[key] = held
        self._by_revision.pop(key, None)
        self._by_revision[key] = None

    def _regroup(self, key: str, before: Held | None, held: Held) -> None:
        if before is not None and before.group:
            members = self._groups[before.group]
            members.pop(key, None)
            if not members:
                del self._groups[before.group]
        if held.group:
            self._groups.setdefault(held.group, {})[key] = None

    def grouped(self, group: str) -> Iterator[str]:
        """Yield the keys of the objects of a group."""
        yield from self._groups.get(group, ())

    def forget(self, key: str, revision: int) -> None:
        """Forget a deletion, unless the object was written again."""
        held = self.held.get(key)
        if held is not None and held.revision == revision:
            del self.held[key], self._by_revision[key]

    def keys(self, prefix: str, after: str) -> Iterator[str]:
        """Yield the keys of objects that begin with a prefix and come after a key, in order."""
        at = bisect_left(self._keys, max(prefix, after))
        while at < len(self._keys) and self._keys[at].startswith(prefix):
            if self._keys[at] != after:
                yield self._keys[at]
            at += 1

    def since(self, revision: int) -> list[str]:
        """Return the keys of the writes after a revision, oldest first."""
        found = []
        for key in reversed(self._by_revision):
            if self.held[key].revision <= revision:
                break
            found.append(key)
        found.reverse()
        return found


@dataclass(slots=True)
class _Grave:
    time: datetime
    owner: str
    key: str
    revision: int


@dataclass(slots=True)
class Room:
    """A bucket.

    epoch: names the bucket and its log; the revisions of another epoch mean nothing.
    revision: the sequence of the last write.
    floor: all deletions after this revision are known.
    """

    epoch: str = ""
    revision: int = 0
    floor: int = 0
    shelves: dict[str, Shelf] = field(default_factory=dict)
    graves: deque[_Grave] = field(default_factory=deque)


class ReadModel:
    """All objects of the read model."""

    def __init__(self) -> None:
        self.rooms: dict[Bucket, Room] = {bucket: Room() for bucket in BUCKETS}

    def begin(self, bucket: Bucket, epoch: str) -> None:
        """Forget a bucket; what comes next is read from its beginning."""
        self.rooms[bucket] = Room(epoch)

    def take(self, bucket: Bucket, owner: str, key: str, held: Held, time: datetime) -> None:
        """Take a write in the order of the bucket.

        owner, key: the first part of the object's key, and the rest of it with dots.
        time: when it was stored.
        """
        room = self.rooms[bucket]
        room.revision = max(room.revision, held.revision)
        room.shelves.setdefault(owner, Shelf()).put(key, held)
        if not held.content:
            room.graves.append(_Grave(time, owner, key, held.revision))
        while room.graves and (
            len(room.graves) > GRAVES_MAX or room.graves[0].time < time - GRAVE_TIME
        ):
            grave = room.graves.popleft()
            room.floor = max(room.floor, grave.revision)
            shelf = room.shelves[grave.owner]
            shelf.forget(grave.key, grave.revision)
            if not shelf.held:
                del room.shelves[grave.owner]

    def note_beginning(
        self, bucket: Bucket, times: Sequence[tuple[int, datetime]], last: int, now: datetime
    ) -> None:
        """Note that a bucket was read from its beginning.

        The bus has forgotten deletions that are older than an hour, so it is not known what was
        deleted before the first write that is younger.

        times: the writes that were read, by revision and time.
        last: a sequence of the bucket up to which all is read. now: the time of the server.
        """
        room = self.rooms[bucket]
        room.revision = max(room.revision, last)
        young = (revision for revision, time in times if time >= now - GRAVE_TIME)
        room.floor = max(room.floor, min(young, default=room.revision + 1) - 1)

    def get(self, bucket: Bucket, owner: str, key: str) -> Held | None:
        """Return an object; None if there is no such object."""
        held = self.version(bucket, owner, key)
        return held if held is not None and held.content else None

    def version(self, bucket: Bucket, owner: str, key: str) -> Held | None:
        """Return the last write of an object, which may be its deletion; None if unknown."""
        return self._shelf(bucket, owner).held.get(key)

    def page(
        self,
        bucket: Bucket,
        owner: str,
        prefix: str,
        after: str,
        includes: Includes | None,
        *,
        limit: int,
        size: int,
    ) -> Page:
        """Return objects of an owner.

        prefix: how their keys begin. after: the key after which the page begins.
        includes: whether an object is selected; None if all are.
        limit, size: the most objects and bytes of the page; a larger object comes alone.
        """
        shelf = self._shelf(bucket, owner)
        chosen: list[Held] = []
        used, last = 0, ""
        for scanned, key in enumerate(shelf.keys(prefix, after)):
            held = shelf.held[key]
            if len(chosen) >= limit or (includes is not None and scanned >= SCAN_MAX):
                return Page(chosen, last)
            if includes is None or includes(held.content):
                if chosen and used + len(held.content) > size:
                    return Page(chosen, last)
                chosen.append(held)
                used += len(held.content) + 1
            last = key
        return Page(chosen, "")

    def changes(
        self,
        bucket: Bucket,
        owner: str,
        prefix: str,
        since: int,
        includes: Includes | None,
        *,
        limit: int,
        size: int,
    ) -> Changes:
        """Return what has changed of the objects of an owner after a revision; see `page`."""
        shelf = self._shelf(bucket, owner)
        items: list[Change] = []
        scanned, used, last = 0, 0, since
        for key in shelf.since(since):
            if not key.startswith(prefix):
                continue
            held = shelf.held[key]
            if len(items) >= limit or scanned >= SCAN_MAX:
                return Changes(items, last)
            scanned += 1
            if held.content and includes is not None and not includes(held.content):
                held = held._replace(content=b"")
            if items and used + len(held.content) > size:
                return Changes(items, last)
            items.append(Change(key, held))
            used += len(held.content) + len(key) + 100
            last = held.revision
        return Changes(items, max(since, self.rooms[bucket].revision))

    def contents(self, bucket: Bucket, owner: str) -> Iterator[tuple[str, bytes]]:
        """Yield the objects of an owner by key, in order."""
        shelf = self._shelf(bucket, owner)
        for key in shelf.keys("", ""):
            yield key, shelf.held[key].content

    def grouped(self, bucket: Bucket, owner: str, group: str, prefix: str = "") -> Iterator[bytes]:
        """Yield the objects of a group whose keys begin with a prefix."""
        shelf = self._shelf(bucket, owner)
        for key in shelf.grouped(group):
            if key.startswith(prefix):
                yield shelf.held[key].content

    def _shelf(self, bucket: Bucket, owner: str) -> Shelf:
        return self.rooms[bucket].shelves.get(owner) or Shelf()
