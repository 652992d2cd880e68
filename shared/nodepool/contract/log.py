"""A message as the log stores it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple, NewType

LogId = NewType("LogId", str)
"""What tells one log from another: a log that is made anew has another one."""
NO_ID = LogId("")
"""The identity of a log in memory that has none."""
COMMANDS: Final = "np.cmd.*.*.*.*"
"""The subjects of all commands."""
EVENTS: Final = "np.evt.*.*.*.*.*"
"""The subjects of all events."""
SUBJECTS: Final = (COMMANDS, EVENTS, "np.commit.*", "np.dead.*")
"""All that the log takes. The server acknowledges no message on a subject of another shape."""
LOG: Final = "NODEPOOL"
"""The stream that is the log."""
SNAPSHOTS: Final = "NODEPOOL_SNAPSHOTS"
"""The stream of the snapshots of the services."""
MESSAGE_BYTES_MAX: Final = 1024 * 1024
"""The largest message that the log takes, its headers included."""
OLDEST_SERVER: Final = 2, 15
"""The oldest nats-server that is supported, by major and minor version.

2.15 syncs a commit to disk four times, 2.14 as often as the commit has messages.
"""
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


def covers(wide: str, subject: str) -> bool:
    """Return whether every subject that `subject` matches is one that `wide` matches.

    Both may have wildcards.
    """
    if wide == subject:
        return True
    own, wanted = wide.split("."), subject.split(".")
    for place, part in enumerate(own):
        if part == ">":
            return len(wanted) > place
        if place >= len(wanted) or wanted[place] == ">":
            return False
        if part not in ("*", wanted[place]):
            return False
    return len(own) == len(wanted)
