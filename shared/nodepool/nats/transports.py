"""How bytes go to a NATS server and come back: over TCP, or over a WebSocket."""

import ssl
from collections.abc import Callable, Sequence
from urllib.parse import ParseResult

from nats.aio import transport

from nodepool.nats.websocket import WebSocketTransport


def transport_to(uri: ParseResult, tls: Callable[[], ssl.SSLContext]) -> transport.Transport:
    """A transport to this address, not yet connected.

    tls: makes the context that says whose certificates are trusted.
    """
    if uri.scheme in ("ws", "wss"):
        return WebSocketTransport(tls)
    return TcpTransport()  # type: ignore[no-untyped-call]  # As nats-py has it.


class TcpTransport(transport.TcpTransport):
    """That of the client, in which a closed socket is an error like any other in every event loop.

    The loop of uvloop raises RuntimeError where a socket is written to that is closed already. The
    client takes that for the end of the loop, stops sending, and fails every call that sends.
    """

    def write(self, payload: bytes) -> None:
        """Sends some bytes; raises OSError where the socket is closed."""
        self.writelines([payload])

    def writelines(self, payload: Sequence[bytes]) -> None:
        """Sends some bytes, one after the other; raises OSError where the socket is closed."""
        try:
            super().writelines(payload)  # type: ignore[no-untyped-call]  # As nats-py has it.
        except RuntimeError as error:
            raise ConnectionResetError(str(error)) from error
