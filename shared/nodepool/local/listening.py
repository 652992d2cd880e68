"""Where the server of `nodepool up` listens: on this machine alone, or encrypted for others."""

import ipaddress
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from nodepool.local.errors import ServerError
from nodepool.local.ports import HOST

LOCAL_NAMES = ("localhost", HOST, "::1")
_EVERYWHERE = ("0.0.0.0", "::")
_ELSEWHERE = ("192.0.2.1", 9)
"""An address to which nothing is sent: https://www.rfc-editor.org/rfc/rfc5737."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM: whom clients trust, and what the server shows to them."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Listening:
    """An address, and the certificate without which none but this machine may be listened to.

    host: a name or an IP address.
    """

    port: int
    host: str = HOST
    certificate: Certificate | None = None

    @property
    def is_local(self) -> bool:
        """Return whether only programs of this machine can connect."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def reached_at(self) -> str:
        """The address at which programs of this machine connect."""
        if self.host not in _EVERYWHERE:
            return self.host
        return HOST if self.host == _EVERYWHERE[0] else "::1"

    @property
    def address(self) -> str:
        """What the configuration of the server has."""
        return _with_port(self.host, self.port)

    @property
    def url(self) -> str:
        """The address of the server for programs of this machine."""
        scheme = "nats" if self.certificate is None else "tls"
        return f"{scheme}://{_with_port(self.reached_at, self.port)}"

    def info(self) -> dict[str, object]:
        """Return what a NATS server sends to each new client; empty if no NATS server responds.

        The message is `INFO`: https://docs.nats.io/reference/reference-protocols/nats-protocol.
        """
        try:
            where = (self.reached_at, self.port)
            with socket.create_connection(where, timeout=0.5) as connection:
                connection.settimeout(0.5)
                with connection.makefile("rb") as stream:
                    word, _, text = stream.readline(64 * 1024).partition(b" ")
            info = json.loads(text) if word == b"INFO" else None
        except (OSError, ValueError):
            return {}
        return info if isinstance(info, dict) else {}

    def encrypted(self, folder: Path) -> "Listening":
        """Return the same with a certificate if others can connect; make it if it is missing.

        folder: where the certificate and its authority are.

        Raises ServerError if there is no certificate, and none can be made.
        """
        if self.is_local:
            return self
        files = Certificate(folder / "ca.pem", folder / "server.pem", folder / "server.key")
        try:
            from nodepool.local.authority import renew
        except ImportError:
            if not all(path.exists() for path in (files.authority, files.certificate, files.key)):
                raise ServerError(
                    f"listening on {self.host} without TLS would show everything to the network:"
                    " run `pip install cryptography`, which makes the certificates of --listen,"
                    f" or put your own into {folder} as ca.pem, server.pem and server.key"
                ) from None
        else:
            renew(files, self.names())
        return replace(self, certificate=files)

    def names(self) -> Sequence[str]:
        """Return the names and addresses by which clients may know the server."""
        names = [*LOCAL_NAMES, socket.gethostname()]
        names += [self.host] if self.host not in _EVERYWHERE else _own_addresses()
        return list(dict.fromkeys(name for name in names if name))


def _own_addresses() -> Sequence[str]:
    """Return the address from which this machine reaches others; empty without a network."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)
        return [str(probe.getsockname()[0])]
    return []


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
