"""What the gateway and its child process say to each other."""

import json
from typing import Final, NamedTuple

from nodepool.contract.buckets import Bucket

FAULT: Final = b'{"fault"'
"""How a frame begins that says why there is no more."""
FRAME_BYTES_MAX: Final = 16 << 20
"""The most bytes of a frame, which has one object or one answer."""
LENGTH_BYTES: Final = 4
"""A frame begins with its length; an empty frame ends a reply."""
BYTE_ORDER: Final = "big"


class Limits(NamedTuple):
    """What the child may take.

    job_s: how many seconds for a job; after that, it ends.
    memory_bytes: how many bytes of memory.
    """

    job_s: int = 20
    memory_bytes: int = 1 << 30

    def __str__(self) -> str:
        return f"{self.job_s} s or {self.memory_bytes >> 20} MiB"


class Kept(NamedTuple):
    """An object of a moment.

    owner, key: the first part of the object's key, and the rest of it with dots.
    version: the position of the log at which the object changed last.
    content: the object as JSON.
    group: what the object is listed by.
    """

    bucket: Bucket
    owner: str
    key: str
    version: int
    group: str
    content: bytes

    def frame(self) -> bytes:
        """Return the object as a frame."""
        return json.dumps(self[:5]).encode() + b"\n" + self.content

    @staticmethod
    def of(frame: bytes) -> "Kept":
        """Return the object in a frame."""
        head, _, content = frame.partition(b"\n")
        bucket, owner, key, version, group = json.loads(head)
        return Kept(bucket, owner, key, version, group, content)
