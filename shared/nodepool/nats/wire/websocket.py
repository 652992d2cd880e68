"""A connection to a NATS server over a WebSocket, which passes proxies that pass only web traffic.

The transport of nats-py, on aiohttp, leaves a session open after each failed attempt, and bounds no
handshake. Little of RFC 6455 is needed here: the server's frames carry a stream of bytes, in which
the boundaries of frames and messages have no meaning. See
https://www.rfc-editor.org/rfc/rfc6455 and
https://docs.nats.io/running-a-nats-service/configuration/websocket.
"""

import asyncio
import base64
import hashlib
import os
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import ParseResult

from nodepool.nats.wire.library import NatsError, ProtocolError, Transport

FRAME_BYTES_MAX = 64 << 20
"""The largest frame that is accepted; a server sends at most one message of its `max_payload`."""
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_FINAL = _MASKED = 0x80
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocketTransport(Transport):
    """The transport of a client for `ws://`, and with TLS for `wss://`.

    tls: makes the TLS context, which says whose certificates are trusted.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls
        self._reader: StreamReader | None = None
        self._writer: StreamWriter | None = None
        self._received = b""
        self._is_closed = False

    @property
    def _streams(self) -> tuple[StreamReader, StreamWriter]:
        assert self._reader is not None, "connect first"
        assert self._writer is not None, "connect first"
        return self._reader, self._writer

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect and shake hands; raise OSError, TimeoutError or an error of the client."""
        context = self._tls() if uri.scheme == "wss" else None
        port = uri.port or (443 if context else 80)
        async with asyncio.timeout(connect_timeout):
            self._reader, self._writer = await asyncio.open_connection(
                uri.hostname, port, ssl=context, limit=buffer_size
            )
            self._received, self._is_closed = b"", False
            await self._shake_hands(uri)

    async def connect_tls(self, *_: object) -> None:
        """Do nothing: an encrypted connection is encrypted from the first byte."""

    async def _shake_hands(self, uri: ParseResult) -> None:
        reader, writer = self._streams
        key = base64.b64encode(os.urandom(16))
        lines = (
            f"GET {uri.path or '/'} HTTP/1.1",
            f"Host: {uri.netloc.rpartition('@')[2]}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
        )
        writer.write("\r\n".join((*lines, "", "")).encode())
        try:
            status, *fields = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise NatsError("nats: no WebSocket answers there") from error
        accepted = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        values = {name.lower(): value.strip() for name, _, value in map(_field, fields)}
        if b" 101 " not in status or values.get(b"sec-websocket-accept") != accepted:
            raise NatsError("nats: no WebSocket answers there")

    def write(self, payload: bytes) -> None:
        """Send bytes; `drain` waits until they are written."""
        self._send(_BINARY, payload)

    def writelines(self, payload: Sequence[bytes]) -> None:
        """Send several pieces in one frame."""
        self._send(_BINARY, b"".join(payload))

    def _send(self, kind: int, payload: bytes) -> None:
        try:
            self._streams[1].write(frame(kind, payload, os.urandom(4)))
        except RuntimeError as error:  # See `TcpTransport`.
            raise ConnectionResetError(str(error)) from error

    async def read(self, buffer_size: int) -> bytes:
        """Return the bytes that have arrived, at least one byte; b"" at the end."""
        received, self._received = self._received, b""
        return received or await self._next()

    async def readline(self) -> bytes:
        """Return the bytes up to the next line end, or up to the end of the stream."""
        line = b""
        while b"\n" not in line:
            received = await self.read(0)
            if not received:
                return line
            line += received
        line, mark, self._received = line.partition(b"\n")
        return line + mark

    async def _next(self) -> bytes:
        """Return the content of the next frame with content; b"" at the end."""
        reader, _ = self._streams
        while True:
            try:
                kind, payload = await _read_frame(reader)
            except asyncio.IncompleteReadError:
                return b""
            if kind == _CLOSE:
                self._is_closed = True
                return b""
            if kind == _PING:
                self._send(_PONG, payload)
            elif kind != _PONG and payload:
                return payload

    async def drain(self) -> None:
        """Wait until there is room for more bytes."""
        await self._streams[1].drain()

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            with suppress(OSError, RuntimeError):
                self._send(_CLOSE, b"")
            self._writer.close()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        if self._writer is not None:
            await self._writer.wait_closed()

    def at_eof(self) -> bool:
        """Return whether the server has closed the connection, and all bytes are read."""
        if self._reader is None or self._is_closed:
            return True
        return not self._received and self._reader.at_eof()

    def __bool__(self) -> bool:
        return self._writer is not None


def frame(kind: int, payload: bytes, mask: bytes) -> bytes:
    """Return a frame from a client to a server; the four bytes of `mask` mask its payload."""
    size = len(payload)
    if size < 126:
        head = bytes((_FINAL | kind, _MASKED | size))
    elif size < 1 << 16:
        head = bytes((_FINAL | kind, _MASKED | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FINAL | kind, _MASKED | 127)) + size.to_bytes(8, "big")
    pad = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")
    return head + mask + masked.to_bytes(size, "big")


async def _read_frame(reader: StreamReader) -> tuple[int, bytes]:
    """Return the kind and payload of the next frame; raise IncompleteReadError at the end."""
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size >= 126:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
    if second & _MASKED or size > FRAME_BYTES_MAX:
        raise ProtocolError("a frame that no server sends")
    return first & 0x0F, await reader.readexactly(size)


def _field(line: bytes) -> tuple[bytes, bytes, bytes]:
    return line.partition(b":")
