"""Asks the service of a container whether it is ready: `python -m nodepool.host.check`.

Exits with 0 if the service is ready, and otherwise with 1 and one line that says why not. A
container engine runs this check every few seconds for each replica, so it imports little: the
modules for HTTP and for the settings would cost three times as much as the rest of the check.
"""

import os
import socket
import sys
from collections.abc import Mapping

TIMEOUT_S = 3.0
PAGE_MAX = 4_096
"""How many bytes of the response are read."""
_REACHED_BY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""The address to connect to if the service listens on all addresses."""


def obstacle(environment: Mapping[str, str]) -> str | None:
    """Return why the service with these settings is not ready, as one line; None if it is ready."""
    host = environment.get("NODEPOOL_METRICS_HOST", "127.0.0.1")
    port = environment.get("NODEPOOL_METRICS_PORT", "-1")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        return f"NODEPOOL_METRICS_PORT is {port!r}: set the port on which the service listens"
    try:
        response = _get(_REACHED_BY.get(host, host), int(port))
    except OSError as error:
        return f"nothing answers on {host}:{port}: {error.strerror or error}"
    head, _, page = response.partition(b"\r\n\r\n")
    if head.split(b" ")[1:2] == [b"200"]:
        return None
    text = " ".join(page.decode(errors="replace").split())
    return text or f"{host}:{port} does not answer as a service does"


def _get(host: str, port: int) -> bytes:
    """Return the response to a request for `/readyz`, with its head."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        response = b""
        while len(response) < PAGE_MAX and (more := connection.recv(PAGE_MAX)):
            response += more
    return response


if __name__ == "__main__":
    sys.exit(obstacle(os.environ))
