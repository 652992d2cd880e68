"""How bytes go to a NATS server and come back: over TCP, or over a WebSocket."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from urllib.parse import ParseResult

from nodepool.nats.wire.library import transport
from nodepool.nats.wire.websocket import WebSocketTransport


def transport_to(uri: ParseResult, tls: Callable[[], ssl.SSLContext]) -> transport.Transport:
    """Return a transport to an address, not yet connected.

    tls: makes the context that says whose certificates are trusted.
    """
    if uri.scheme in ("ws", "wss"):
        return WebSocketTransport(tls)
    return TcpTransport()  # type: ignore[no-untyped-call]  # As nats-py has it.


class _EncryptedProtocol(asyncio.StreamReaderProtocol):
    """The protocol over TLS, which cannot be half-closed; asyncio warns if a caller tries."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class TcpTransport(transport.TcpTransport):
    """The client's TCP transport, for which a closed socket is an ordinary error in any event loop.

    uvloop raises RuntimeError on a write to a closed socket. The client takes that for the end of
    the event loop, stops sending, and fails every call that sends.
    """

    async def connect_tls(
        self,
        uri: str | ParseResult,
        ssl_context: ssl.SSLContext,
        buffer_size: int,
        connect_timeout: int,
    ) -> None:
        """Encrypt the connection; a reader that is not read from stops the server here too."""
        assert self._io_writer is not None, "connect first"
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=buffer_size)
        protocol = _EncryptedProtocol(reader)
        host = uri if isinstance(uri, str) else uri.hostname
        plain, self._io_writer = self._io_writer, None
        # `start_tls` closes the socket if it fails. Nobody may then wait until the writer from
        # before is closed: its protocol is replaced, and never hears of that.
        async with asyncio.timeout(connect_timeout):
            transport = await loop.start_tls(
                plain.transport, protocol, ssl_context, server_hostname=host
            )
        assert transport is not None
        reader.set_transport(transport)
        self._io_reader = reader
        self._io_writer = asyncio.StreamWriter(transport, protocol, reader, loop)

    def write(self, payload: bytes) -> None:
        """Send bytes; raise OSError if the socket is closed."""
        self.writelines([payload])

    def writelines(self, payload: Sequence[bytes]) -> None:
        """Send several pieces of bytes in order; raise OSError if the socket is closed."""
        try:
            super().writelines(payload)  # type: ignore[no-untyped-call]  # As nats-py has it.
        except RuntimeError as error:
            raise ConnectionResetError(str(error)) from error
