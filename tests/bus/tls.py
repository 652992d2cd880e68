"""A server that encrypts, with certificates made for it."""

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bus.harness import BINARY, PAUSE_S

OPENSSL = shutil.which("openssl")
START_S = 20.0
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Certificates:
    """Files in PEM.

    ca: who signs, and is to be trusted.
    certificate, key: the server's, for 127.0.0.1 and localhost.
    """

    ca: Path
    certificate: Path
    key: Path


def certificates(folder: Path) -> Certificates:
    """A new authority, and what it has signed for a server on this machine."""
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key = folder / "ca.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    _openssl("req", "-x509", *curve, "-subj", "/CN=ca", "-keyout", ca_key, "-out", made.ca)
    signed_by = ["-CA", str(made.ca), "-CAkey", str(ca_key), "-addext", names]
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    _openssl("req", "-x509", *curve, "-subj", "/CN=bus", *signed_by, *files)
    return made


def _openssl(*words: str | Path) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *words], check=True, capture_output=True)


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
    end = time.monotonic() + START_S
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
