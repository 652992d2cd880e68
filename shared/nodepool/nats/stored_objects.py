"""What is known of the objects that lie in the buckets of the read model; pure, without I/O."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from nodepool.contract.buckets import PARTS

ObjectKey = tuple[str, str]
"""An object of the read model: its bucket, and its key with slashes."""
VERSION = "Nodepool-Version"
"""The header that carries an object's version: the position in the log that touched it last."""
RENDERING = "Nodepool-Rendering"
"""The header that says how an object was made a document: the same version can look otherwise."""
TOMBSTONE_S = 3600
"""How long readers can see that an object was deleted; then the server forgets it."""

_DIGITS = re.compile("[0-9]{1,18}")
# The characters that https://docs.nats.io/nats-concepts/jetstream/key-value-store allows in a key;
# the slashes of an object's key become the dots of the stored one.
_KEY = re.compile(r"[-_=a-zA-Z0-9]+([./][-_=a-zA-Z0-9]+)*")
_KEY_MAX = 2_000
"""The longest key, in characters: a whole line of the protocol has at most 4,096."""


class StoredObject(NamedTuple):
    """The last write of an object: its sequence in the bucket, its version, whether it deleted.

    rendering: how the object was made a document.
    """

    position: int
    version: int
    deleted: bool = False
    rendering: str = ""


NOTHING = StoredObject(position=0, version=0, deleted=True)
"""What is known of an object that was never written, or whose tombstone has expired."""


def key_fault(key: ObjectKey) -> str | None:
    """Why an object cannot be stored under its key; None where it can."""
    name = key[1]
    if len(name) > _KEY_MAX:
        return f"the key has {len(name)} characters; at most {_KEY_MAX} are stored"
    if not _KEY.fullmatch(name):
        return f"{name!r} is no key: letters, digits, '-', '_', '=' and single dots are stored"
    return None


def subject_of_object(key: ObjectKey) -> str:
    """The subject of an object in its bucket."""
    bucket, name = key
    return f"$KV.{bucket}.{name.replace('/', '.')}"


def key_of_object(bucket: str, subject: str) -> ObjectKey:
    """The key of the object on this subject."""
    parts = subject.removeprefix(f"$KV.{bucket}.").split(".", PARTS[bucket] - 1)
    return bucket, "/".join(parts)


def stored_object(headers: Mapping[str, str], position: int) -> StoredObject:
    """A write by its headers; one without a proper version is older than all others."""
    text = headers.get(VERSION, "")
    version = int(text) if _DIGITS.fullmatch(text) else 0
    deleted = headers.get("KV-Operation") in ("DEL", "PURGE")
    return StoredObject(position, version, deleted, headers.get(RENDERING, ""))


def headers_of(written: StoredObject, replaced: int) -> dict[str, str]:
    """The headers of a write that replaces the one at the sequence `replaced` of the bucket."""
    headers = {
        "Nats-Expected-Last-Subject-Sequence": str(replaced),
        VERSION: str(written.version),
        RENDERING: written.rendering,
    }
    if written.deleted:
        headers |= {"KV-Operation": "DEL", "Nats-TTL": f"{TOMBSTONE_S}s"}
    return headers


class StoredObjects:
    """The last write of each object, as far as it is known.

    Deleted objects are remembered for as long as the server keeps their tombstones, so the size is
    bounded by the objects there are and those deleted within `TOMBSTONE_S`. `now` is in seconds of
    any monotonic clock.
    """

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, StoredObject] = {}
        self._tombstones: dict[ObjectKey, float] = {}

    def get(self, key: ObjectKey) -> StoredObject:
        """The last write of an object; `NOTHING` where there is none."""
        return self._objects.get(key, NOTHING)

    def note(self, key: ObjectKey, written: StoredObject, now: float) -> None:
        """Remembers a write."""
        self._objects[key] = written
        self._tombstones.pop(key, None)
        if written.deleted:
            self._tombstones[key] = now + TOMBSTONE_S
            self._forget_expired(now)

    def note_missing(self, key: ObjectKey) -> None:
        """Remembers that the bucket holds nothing for this key."""
        self._objects.pop(key, None)
        self._tombstones.pop(key, None)

    def live(self) -> set[ObjectKey]:
        """Every object that is stored and not deleted."""
        return self._objects.keys() - self._tombstones.keys()

    def clear(self) -> None:
        """Forgets everything."""
        self._objects.clear()
        self._tombstones.clear()

    def _forget_expired(self, now: float) -> None:
        # Tombstones are in the order of their expiry.
        while self._tombstones and self._tombstones[key := next(iter(self._tombstones))] <= now:
            del self._tombstones[key], self._objects[key]
