"""A lock that allows only one nats-server at a time to use a data directory."""

import fcntl
import os
import time
from pathlib import Path

from nodepool.local.errors import ServerError

POLL_S = 0.02
_NOTE_BYTES = 40


class DirectoryLock:
    """An exclusive lock on a data directory, and a note of the processes that hold it.

    The nats-server inherits the descriptor. The kernel therefore keeps the lock while this process
    or the server is alive, and releases the lock when both have ended, even if they are killed.

    descriptor: the open lock file, to pass on to the server.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def acquire(self, deadline: float) -> None:
        """Take the lock; raise `ServerError` if a process that keeps running holds it.

        If the holder is ending, waits for its end until `deadline`, a time of `time.monotonic`.
        """
        while not self._try():
            owner, server = self._holders()
            if owner is None or (is_alive(owner) and (server is None or is_alive(server))):
                raise ServerError(
                    f"data directory {self._data_dir} is in use by process {owner or 'unknown'}: "
                    "stop that one first, or choose another directory"
                )
            # The owner or its server was killed, and the other process is about to end. A process
            # that the owner is just starting may also hold the lock, until it calls exec.
            if time.monotonic() >= deadline:
                raise ServerError(
                    f"data directory {self._data_dir} is in use by a nats-server that was left "
                    f"behind (pid {server}): end it with `kill -KILL {server}`"
                )
            time.sleep(POLL_S)
        self.note(server=None)

    def note(self, server: int | None) -> None:
        """Write the process id of this process and of the server into the lock file."""
        # A single write of a fixed length, so that a reader never sees a partial note.
        os.pwrite(self.descriptor, f"{os.getpid()} {server or ''}".ljust(_NOTE_BYTES).encode(), 0)

    def release(self) -> None:
        """Close this process's descriptor; a server that still runs keeps the lock."""
        os.close(self.descriptor)

    def _try(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holders(self) -> tuple[int | None, int | None]:
        """Return the process ids of the owner and of its server; None for an id not in the file."""
        return _noted(self.descriptor)


def noted_server(descriptor: int) -> int | None:
    """Return the process id of the server in the note of a lock file; None if it has none."""
    return _noted(descriptor)[1]


def _noted(descriptor: int) -> tuple[int | None, int | None]:
    words = os.pread(descriptor, 64, 0).decode("ascii", "replace").split()
    pids = [int(word) if word.isdigit() else None for word in words[:2]]
    owner, server = (*pids, None, None)[:2]
    return owner, server


def is_alive(pid: int) -> bool:
    """Return whether there is a process with this id, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
