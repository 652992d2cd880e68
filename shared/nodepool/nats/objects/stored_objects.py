"""What a writer knows about the objects in the buckets of the read model; pure, without I/O."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from nodepool.contract.buckets import PARTS

ObjectKey = tuple[str, str]
"""An object of the read model: its bucket, and its key with slashes."""
Report = Callable[[str, int], None]
"""Reports a fault of objects in the read model: the fault, and the number of objects."""
VERSION_HEADER = "Nodepool-Version"
"""The header with an object's version: the position of the last log entry that touched it."""
LOG = "Nodepool-Log"
"""The header that names the log whose positions the version counts."""
RENDERING = "Nodepool-Rendering"
"""The header that says how an object was rendered: one version can have several renderings."""
TOMBSTONE_S = 3600
"""How long readers can see that an object was deleted; then the server forgets it."""

EXPIRY_S = 60.0
"""How much earlier the server may forget a tombstone."""
_DIGITS = re.compile("[0-9]{1,18}")
# The characters that https://docs.nats.io/nats-concepts/jetstream/key-value-store allows in a key;
# the slashes of an object's key become the dots of the stored one.
_KEY = re.compile(r"[-_=a-zA-Z0-9]+([./][-_=a-zA-Z0-9]+)*")
_FOREIGN = "\0"
"""The prefix of the key for a subject that no object can have; the subject follows unchanged."""
_KEY_MAX = 2_000
"""The longest key, in characters: a whole line of the protocol may have 4,096 characters."""


class StoredObject(NamedTuple):
    """The last write of an object: its sequence in the bucket, its version, whether it deleted.

    rendering: how the object was rendered as a document.
    log: the identity of the log whose positions the version counts; empty for an old write.
    """

    position: int
    version: int
    deleted: bool = False
    rendering: str = ""
    log: str = ""


NOTHING = StoredObject(position=0, version=0, deleted=True)
"""The value for an object that was never written, or whose tombstone has expired."""


def key_fault(key: ObjectKey) -> str | None:
    """Return why an object cannot be stored under its key; None if it can be."""
    name = key[1].removeprefix(_FOREIGN)
    if len(name) > _KEY_MAX:
        return f"the key has {len(name)} characters; at most {_KEY_MAX} are stored"
    if not _KEY.fullmatch(name):
        return f"{name!r} is no key: letters, digits, '-', '_', '=' and single dots are stored"
    return None


def stream_of(bucket: str) -> tuple[str, Sequence[str]]:
    """Return the stream of a bucket, and the filters for all its objects."""
    return f"KV_{bucket}", [f"$KV.{bucket}.>"]


def subject_of_object(key: ObjectKey) -> str:
    """Return the subject of an object in its bucket."""
    bucket, name = key
    if name.startswith(_FOREIGN):
        return f"$KV.{bucket}.{name.removeprefix(_FOREIGN)}"
    return f"$KV.{bucket}.{name.replace('/', '.')}"


def key_of_object(bucket: str, subject: str) -> ObjectKey:
    """Return the key of the object on a subject; an unused key for a foreign subject."""
    name = subject.removeprefix(f"$KV.{bucket}.")
    key = bucket, "/".join(name.split(".", PARTS[bucket] - 1))
    return key if subject_of_object(key) == subject else (bucket, _FOREIGN + name)


def stored_object(headers: Mapping[str, str], position: int) -> StoredObject:
    """Return a write by its headers; a write without a valid version gets version 0."""
    text = headers.get(VERSION_HEADER, "")
    version = int(text) if _DIGITS.fullmatch(text) else 0
    deleted = headers.get("KV-Operation") in ("DEL", "PURGE")
    return StoredObject(
        position, version, deleted, headers.get(RENDERING, ""), headers.get(LOG, "")
    )


def headers_of(written: StoredObject, replaced: int) -> dict[str, str]:
    """Return the headers of a write that replaces the write at sequence `replaced`."""
    headers = {
        "Nats-Expected-Last-Subject-Sequence": str(replaced),
        VERSION_HEADER: str(written.version),
        RENDERING: written.rendering,
        LOG: written.log,
    }
    if written.deleted:
        headers |= {"KV-Operation": "DEL", "Nats-TTL": f"{TOMBSTONE_S}s"}
    return headers


def replaces(wanted: StoredObject, stored: StoredObject) -> bool:
    """Return whether to overwrite a stored object: the wanted one is newer or looks different.

    A stored object is older than all others if it counts the positions of another log.
    """
    if wanted.deleted and stored.deleted:
        return False
    if stored.log == wanted.log and wanted.version < stored.version:
        return False
    return wanted != stored._replace(position=wanted.position)


class Finding(Enum):
    """The verdict on a write that another program may have made."""

    RIGHT = auto()
    """This writer would write the same, or will replace the write without further action."""
    WRONG = auto()
    """No writer of this log writes this at this version."""
    NEWER = auto()
    """The write has a version that this writer has not reached yet."""


def examine(stored: StoredObject, wanted: StoredObject, committed: int, log_end: int) -> Finding:
    """Return the Finding for a stored object by its headers.

    wanted: what this writer would write, whose state goes up to `committed`.
    log_end: the position of the newest message of the log.

    If the object is RIGHT and has the version of `wanted`, its content remains to be compared.
    """
    if stored.log != wanted.log:
        return Finding.WRONG
    if stored.version > max(committed, wanted.version):
        return Finding.WRONG if stored.version > log_end else Finding.NEWER
    if wanted.deleted:
        return Finding.RIGHT
    is_older = stored.version < wanted.version
    is_same = stored.version == wanted.version and not stored.deleted
    return Finding.RIGHT if is_older or is_same else Finding.WRONG


def is_same_document(content: bytes, wanted: bytes) -> bool:
    """Return whether two documents have the same content, in whatever order of their fields."""
    if content == wanted:
        return True
    try:
        documents = (json.loads(content), json.loads(wanted))
    except (ValueError, RecursionError):
        return False
    # As text, because True equals 1.
    first, second = (json.dumps(document, sort_keys=True) for document in documents)
    return first == second


class Extent:
    """How much of a bucket is known: everything up to a position, and own writes beyond it.

    created: when the bucket was created, in the server's format; empty while unknown.
    known: the position up to which every write is this writer's or has been examined.
    """

    def __init__(self) -> None:
        self.created = ""
        self.known = 0
        self._own: set[int] = set()

    def note(self, position: int) -> None:
        """Note the position of a write of this writer."""
        self._own.add(position)
        self._absorb()

    def is_known(self, position: int) -> bool:
        """Return whether the write at a position is this writer's or has been examined."""
        return position <= self.known or position in self._own

    def note_examination(self, position: int) -> None:
        """Note that everything up to this position has been examined."""
        self.known = max(self.known, position)
        self._own = {own for own in self._own if own > self.known}
        self._absorb()

    def begin(self, created: str) -> None:
        """Begin with another bucket, of which nothing is known yet."""
        self.created, self.known = created, 0
        self._own.clear()

    def _absorb(self) -> None:
        while self.known + 1 in self._own:
            self.known += 1
            self._own.remove(self.known)


class StoredObjects:
    """The last write of each object, as far as it is known.

    Deleted objects are remembered until the server forgets their tombstones, so the size is bounded
    by the existing objects and the objects deleted within `TOMBSTONE_S`. `now` is in seconds of any
    monotonic clock.

    extents: how much of each bucket is known, by its name; `clear` keeps them.
    """

    def __init__(self) -> None:
        self.extents: defaultdict[str, Extent] = defaultdict(Extent)
        self._objects: dict[ObjectKey, StoredObject] = {}
        self._tombstones: dict[ObjectKey, float] = {}

    def get(self, key: ObjectKey) -> StoredObject:
        """Return the last write of an object; `NOTHING` if there is none."""
        return self._objects.get(key, NOTHING)

    def note(self, key: ObjectKey, written: StoredObject, now: float) -> None:
        """Remember a write."""
        self._objects[key] = written
        self._tombstones.pop(key, None)
        if written.deleted:
            self._tombstones[key] = now + TOMBSTONE_S
            self._forget_expired(now)

    def note_missing(self, key: ObjectKey) -> None:
        """Remember that the bucket holds nothing for this key."""
        self._objects.pop(key, None)
        self._tombstones.pop(key, None)

    def note_read(
        self, key: ObjectKey, written: StoredObject, now: float, age_s: float = 0.0
    ) -> None:
        """Remember a write that was read, unless a later write of the object is known.

        age_s: how long ago it was stored, in seconds.
        """
        if written.position > self.get(key).position:
            # A tombstone older than that never expires: another program wrote it without a TTL.
            is_kept = age_s > TOMBSTONE_S + EXPIRY_S
            self.note(key, written, now if is_kept else now - age_s)

    def count(self, bucket: str, now: float) -> range:
        """Return how many messages the bucket may hold if only the remembered writes exist.

        The server forgets a tombstone at about the moment at which it expires here.
        """
        total = sum(1 for name, _ in self._objects if name == bucket)
        buried = [expiry for (name, _), expiry in self._tombstones.items() if name == bucket]
        expiring = sum(1 for expiry in buried if expiry < now + EXPIRY_S)
        return range(total - expiring, total + 1)

    def live(self) -> set[ObjectKey]:
        """Return the keys of all objects that are stored and not deleted."""
        return self._objects.keys() - self._tombstones.keys()

    def clear(self) -> None:
        """Forget everything."""
        self._objects.clear()
        self._tombstones.clear()

    def _forget_expired(self, now: float) -> None:
        # Tombstones are in the order of their expiry. Tombstones that were read are only roughly in
        # order; a tombstone behind one that expires later is forgotten together with it.
        while self._tombstones and self._tombstones[key := next(iter(self._tombstones))] <= now:
            del self._tombstones[key], self._objects[key]
