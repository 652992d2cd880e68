"""A nats-server that has run out of disk, and stores again when there is room, without a restart.

It stops storing for good at the first write that fails for want of space, and refuses before that
at three quarters of what its own data and the free space make together, a limit that it computes
when JetStream starts. So both end when JetStream is stopped and started inside the same server.
"""

import os
from collections.abc import Sequence
from pathlib import Path

ROOM_BYTES = 4 << 20
"""How much it must be able to store before it is worth a try."""
LOG_BYTES_MAX = 1 << 20
"""The most that is read of the server's log at once."""

_SIGNS = (b"no space left on device", b"disk quota exceeded", b"file resource limits exceeded")
"""What the server logs, in small letters, when it has no room."""
_OF_CLIENT = b" - cid:"
"""What stands in a line about a connection, which may quote whatever its client has sent."""


class DiskWatch:
    """Whether a server has run out of disk, by its log, and whether it has room again.

    store: the folder of its data.
    log_file: the file that it logs to.
    """

    def __init__(self, store: Path, log_file: Path) -> None:
        self._store = store
        self._log_file = log_file
        self._read = log_file.stat().st_size if log_file.exists() else 0
        self._is_full = False

    @property
    def is_full(self) -> bool:
        """Whether it could not store something, at the last check."""
        return self._is_full

    def check(self) -> bool:
        """Read the new log lines; return whether the disk was full and now has room again."""
        lines = [line.lower() for line in self._new_lines() if _OF_CLIENT not in line]
        self._is_full = self._is_full or any(sign in line for line in lines for sign in _SIGNS)
        return self._is_full and self._has_room()

    def relieved(self) -> None:
        """Note that the server tries again, and ignore the log lines up to now."""
        self._new_lines()
        self._is_full = False

    def _new_lines(self) -> Sequence[bytes]:
        """Return the complete lines added to the log, at most the last `LOG_BYTES_MAX` bytes."""
        try:
            size = self._log_file.stat().st_size
            with self._log_file.open("rb") as log:
                # A log that was begun anew is shorter.
                begin = self._read if self._read <= size else 0
                start = log.seek(max(begin, size - LOG_BYTES_MAX))
                text, newline, _ = log.read(LOG_BYTES_MAX).rpartition(b"\n")
        except OSError:
            return ()
        self._read = start + len(text) + len(newline)
        lines = text.split(b"\n")
        return lines if start == begin else lines[1:]

    def _has_room(self) -> bool:
        try:
            stat = os.statvfs(self._store)
        except OSError:
            return False
        return _limit(stat, own := _size(self._store)) >= own + ROOM_BYTES


def storage_limit(store: Path) -> int:
    """Return how many bytes a server that starts now may store in this folder; 0 if not known."""
    try:
        return _limit(os.statvfs(store), _size(store))
    except OSError:
        return 0


def _limit(stat: os.statvfs_result, own: int) -> int:
    return (stat.f_bavail * stat.f_frsize + own) * 3 // 4


def _size(folder: Path) -> int:
    """Return the bytes that the files of a folder take; a file that vanishes meanwhile counts 0."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(place, name).stat().st_blocks * 512
            except OSError:
                continue
    return total
