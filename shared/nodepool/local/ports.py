"""The loopback address, and finding free TCP ports on it."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from nodepool.local.errors import UpError

HOST = "127.0.0.1"
BLOCK = 16
"""How many ports are claimed together; the last port marks the claim, and is not given out."""
_PORTS_END = 65_000


@contextmanager
def claimed_ports(count: int, first: int) -> Iterator[Sequence[int]]:
    """Claim this number of free ports from `first` upwards, for the time of the context.

    Other programs may listen on the ports: this process holds only the last port of their block,
    and another claim that finds that port held tries the next block. Raises UpError if too few
    ports are free.
    """
    for start in range(first, _PORTS_END, BLOCK):
        with socket.socket() as guard:
            try:
                guard.bind((HOST, start + BLOCK - 1))
            except OSError:
                continue
            ports = [port for port in range(start, start + BLOCK - 1) if _is_free(port)]
            if len(ports) >= count:
                yield ports[:count]
                return
    raise UpError(f"there are no {count} free ports from {first} upwards on {HOST}: free some")


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.socket() as probe:
        # A port that was closed a moment ago can be listened on, so it counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False
