"""One message as it lies in the log."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple


class Entry(NamedTuple):
    """A stored message: its sequence in the stream, the moment it was stored, and what it holds.

    `time` is the server's own timestamp, in UTC.
    """

    position: int
    time: datetime
    subject: str
    content: bytes
    headers: Mapping[str, str]
