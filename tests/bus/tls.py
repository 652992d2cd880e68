"""A server with settings of its own, such as one that encrypts."""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bus.harness import BINARY, PATIENCE_S, PAUSE_S
from support.certificates import Certificates

HOST = "127.0.0.1"


@contextmanager
def running(folder: Path, port: int, settings: str) -> Iterator[int]:
    """A nats-server with JetStream on a port, and with more settings; its process id."""
    config = folder / f"{port}.conf"
    store = json.dumps(str(folder / f"store-{port}"))
    config.write_text(
        f'server_name: "bus-{port}"\nlisten: "{HOST}:{port}"\n'
        f"jetstream {{ store_dir: {store} }}\n{settings}\n"
    )
    with (folder / f"{port}.log").open("ab") as log:
        process = subprocess.Popen([BINARY, "--config", config], stdout=log, stderr=log)
    try:
        _wait_for(port)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "the server does not start"
            threading.Event().wait(PAUSE_S)


def encrypted(made: Certificates) -> str:
    """The part of a server's settings that has it use TLS; the same for a WebSocket."""
    return f'tls {{ cert_file: "{made.certificate}", key_file: "{made.key}", timeout: 5 }}'
