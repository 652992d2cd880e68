"""A message as the log stores it."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, NewType

LogId = NewType("LogId", str)
"""What tells one log from another: a log that is made anew has another one."""
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
"""The media type of every message: a CloudEvent as JSON."""


class Entry(NamedTuple):
    """A stored message.

    position: its sequence number in the stream.
    time: when the server stored it, in UTC.
    subject, content, headers: the message itself.
    """

    position: int
    time: datetime
    subject: str
    content: bytes
    headers: Mapping[str, str]
