"""Making a running nats-server read its configuration again, with the accounts that it includes."""

import fcntl
import os
import signal
import time
from pathlib import Path

from nodepool.local.directory_lock import noted_server
from nodepool.local.errors import ServerError

LOG = "nats-server.log"
CONFIRMED_S = 3.0
"""How long a server may take to say in its log that it has its new configuration, in seconds."""
_POLL_S = 0.02
_DONE, _FAILED = b"Reloaded server configuration", b"Failed to reload server configuration"


def running_server(data_dir: Path) -> int | None:
    """Return the process of the nats-server that uses a data directory; None if none runs."""
    try:
        with (data_dir / "lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return noted_server(file.fileno())
    except OSError:
        return None
    return None


def reload_server(pid: int, log: Path | None = None) -> None:
    """Make a server read its configuration again; raise ServerError if it does not.

    log: the log file in which the server says that it has done so; None if there is none to read.
    """
    start = log.stat().st_size if log is not None and log.exists() else 0
    try:
        os.kill(pid, signal.SIGHUP)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "there is no such process"
        text = f"cannot make process {pid} read its accounts: {reason}"
        raise ServerError(f"{text}; name the process of nats-server") from None
    if log is not None:
        _await_reload(log, start)


def _await_reload(log: Path, start: int) -> None:
    deadline = time.monotonic() + CONFIRMED_S
    while time.monotonic() < deadline:
        text = _read(log, start)
        if _DONE in text:
            return
        if _FAILED in text:
            line = text[text.index(_FAILED) :].splitlines()[0].decode("utf-8", "replace")
            raise ServerError(f"the server keeps its accounts: {line} (more in {log})")
        time.sleep(_POLL_S)
    raise ServerError(f"the server has not read its accounts in time; see {log}")


def _read(log: Path, start: int) -> bytes:
    try:
        with log.open("rb") as file:
            # A log file that has been renamed is followed by a new one.
            file.seek(start if start <= os.fstat(file.fileno()).st_size else 0)
            return file.read()
    except FileNotFoundError:
        return b""
