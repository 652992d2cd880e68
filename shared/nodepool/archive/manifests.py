"""The documents of an archive: its identity, the manifests of segments, and snapshot sets."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FORMAT: Final = 1
DOCUMENT_BYTES_MAX: Final = 4 << 20
"""A larger document is damaged: a snapshot set of 100,000 Nodes has some kilobytes."""
OBJECT_BYTES_MAX: Final = 1 << 30
"""No segment and no part of a snapshot is larger."""

_Position = Annotated[int, Field(ge=0, lt=1 << 63)]
_Log = Annotated[str, Field(min_length=1, max_length=100)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Time = Annotated[str, Field(max_length=40)]


class Document(BaseModel):
    """What all documents of an archive have in common.

    format: the version of the form of the archive.
    log: the identity of the log that the archive holds.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal[1] = FORMAT
    log: _Log

    def to_bytes(self) -> bytes:
        """Return the content of the object that stores the document."""
        return self.model_dump_json(indent=1).encode() + b"\n"


class Identity(Document):
    """Which log an archive holds; the chain of the manifests begins with the digest of it.

    first: the position at which the archive begins, 1 unless the log was already cut off.
    """

    first: _Position


class Object(BaseModel):
    """An object with data: its name, its size, and its digest."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: _Name
    bytes: Annotated[int, Field(ge=1, le=OBJECT_BYTES_MAX)]
    sha256: _Sha256


class Manifest(Document):
    """A link of the chain: the manifest of a segment.

    first, last: the positions of the first and the last message of the segment.
    count: how many messages it holds.
    began, ended: when the log stored the first and the last message, in ISO 8601.
    object: where the messages are.
    previous: the SHA-256 of the manifest before; of the identity if this manifest is the first.
    """

    first: _Position
    last: _Position
    count: _Position
    began: _Time
    ended: _Time
    object: Object
    previous: _Sha256


class Snapshot(BaseModel):
    """The snapshot of a service: the chunks that the service has stored, one after the other.

    committed, expected_sequence, bytes, sha256, time: as in the manifest that the service stored;
      `bytes` and `sha256` are of the chunks before compression. The snapshot says what was so after
      the commit record at `expected_sequence`, which lies beyond `committed`.
    parts: where the compressed chunks are, in order.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    committed: _Position
    expected_sequence: _Position
    bytes: Annotated[int, Field(ge=1)]
    sha256: _Sha256
    time: _Time
    parts: tuple[Object, ...] = Field(strict=False)


class SnapshotSet(Document):
    """The snapshots of all services at one time.

    made: when the set was begun, in ISO 8601, by the clock of the server.
    snapshots: by service. A service without a snapshot begins at the start of the log.
    """

    made: _Time
    snapshots: Mapping[str, Snapshot]

    @property
    def newest(self) -> int:
        """The position that the archive must hold before the set is of use: of a commit."""
        return max((each.expected_sequence for each in self.snapshots.values()), default=0)


_D = TypeVar("_D", bound=Document)


def read_document(kind: type[_D], content: bytes) -> _D:
    """Return a document; raise ValueError, which names the fields at fault, for other content."""
    if len(content) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"it has {len(content)} bytes")
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        fields = {".".join(map(str, fault["loc"])) for fault in error.errors()}
        raise ValueError(
            f"cannot be read: {', '.join(sorted(fields - {''})) or 'no JSON'}"
        ) from error


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def fault_of_content(object: Object, content: bytes) -> str:
    """Return why a content is not that of an object; empty if it is."""
    if len(content) != object.bytes:
        return f"has {len(content)} bytes instead of {object.bytes}"
    return "" if digest_of(content) == object.sha256 else "is damaged: its SHA-256 is another one"
