"""Recovering a nats-server that has run out of disk space, without restarting the server.

After the first write that fails for lack of space, the server never stores again. It also refuses
to store more than three quarters of its own data and the free space together; it computes this
limit when JetStream starts. Stopping and starting JetStream in the running server resets both.
"""

import os
from collections.abc import Sequence
from pathlib import Path

ROOM_BYTES = 4 << 20
"""How many more bytes the server must be able to store before another attempt is made."""
LOG_BYTES_MAX = 1 << 20
"""How many bytes of the server's log are read at most at once."""

_SIGNS = (b"no space left on device", b"disk quota exceeded", b"file resource limits exceeded")
"""What the server logs when it has no room, in lower case."""
_OF_CLIENT = b" - cid:"
"""Marks a log line about a connection, which may quote any text that the client has sent."""


class DiskWatch:
    """Detects from a server's log that the server has run out of disk, and when it has room again.

    store: the folder of the server's data.
    log_file: the server's log file.
    """

    def __init__(self, store: Path, log_file: Path) -> None:
        self._store = store
        self._log_file = log_file
        self._read = log_file.stat().st_size if log_file.exists() else 0
        self._is_full = False

    @property
    def is_full(self) -> bool:
        """Return whether the last check found that the server was unable to store a message."""
        return self._is_full

    def check(self) -> bool:
        """Read the new log lines; return whether the disk was full and now has room again."""
        lines = [line.lower() for line in self._new_lines() if _OF_CLIENT not in line]
        self._is_full = self._is_full or any(sign in line for line in lines for sign in _SIGNS)
        return self._is_full and self._has_room()

    def note_retry(self) -> None:
        """Note that the server tries again, and ignore the log lines up to now."""
        self._new_lines()
        self._is_full = False

    def _new_lines(self) -> Sequence[bytes]:
        """Return the complete lines added to the log, at most the last `LOG_BYTES_MAX` bytes."""
        try:
            size = self._log_file.stat().st_size
            with self._log_file.open("rb") as log:
                # If the log is shorter than before, the server has begun a new one.
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
