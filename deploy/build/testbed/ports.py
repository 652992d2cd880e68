"""TCP ports for tests that run side by side: none is given to two of them."""

import fcntl
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from nodepool.local.ports import HOST

_FIRST, _END = 20_000, 32_000
_COUNTER = Path(tempfile.gettempdir()) / f"nodepool-test-port-{os.getuid()}"
"""Holds the port that was given last; all processes count on from it."""


def free_port(following: int = 0) -> int:
    """Return a port that no socket uses; a port is reused only after every other port was tried.

    following: how many ports after it are given to nobody else either.
    """
    for _ in range(_FIRST, _END):
        port = _next(following)
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    raise AssertionError(f"no port from {_FIRST} to {_END} is free")


def _next(following: int) -> int:
    with _COUNTER.open("a+") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        last = counter.read()
        port = int(last) + 1 if last.isdecimal() else _FIRST
        port = port if _FIRST <= port < _END - following else _FIRST
        counter.truncate(0)
        counter.write(str(port + following))
    return port
