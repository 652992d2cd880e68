"""The loopback address, and finding free TCP ports on it."""

import socket
from contextlib import suppress

HOST = "127.0.0.1"
_PORTS_END = 65_000


def free_port() -> int:
    """A port that no socket is using, chosen by the kernel."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int, first: int) -> list[int]:
    """The first `count` free ports from `first` upwards; fewer where there are not as many."""
    ports: list[int] = []
    port = first
    while len(ports) < count and port < _PORTS_END:
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            ports.append(port)
        port += 1
    return ports
