"""A parser for the bytes that a NATS server sends, which accepts any subject and any headers.

A subject may contain any byte except spaces, tabs and line ends, and headers may contain any byte:
the server does not check them. The parser of nats-py decodes both as text, and splits lines at
everything that Python regards as whitespace. The protocol is described at
https://docs.nats.io/reference/reference-protocols/nats-protocol.
"""

import json

from nodepool.contract.door import REQUEST_INFO
from nodepool.nats.wire.library import ClientParser, ProtocolError

LINE_BYTES_MAX = 1 << 20
"""The longest line from a server: lines with a subject have a few kilobytes, `INFO` a few dozen."""
VERSION = b"NATS/1.0"
SEQUENCE = "Nats-Sequence"
"""The header with the position of a stored message, in the reply to a direct get."""

_REQUEST_INFO = REQUEST_INFO.encode() + b": "


def text(raw: bytes) -> str:
    """Bytes as text: those that are no UTF-8 as `\\xff`, so that different bytes stay different."""
    return raw.decode("utf-8", "backslashreplace")


def parse_headers(raw: bytes) -> dict[str, str] | None:
    """Return the headers of a message by name, None if it has no headers; never raise.

    The status of a message that has one, such as 503, is `Status`, and the text after it is
    `Description`. A stored message has no status: what looks like it was written by its sender.

    The server adds `Nats-Request-Info` as the last header. The server does not check what it adds
    the header to, so a sender can write the header elsewhere, and hide the server's header in the
    value of another. Such a message is left without the header.
    """
    first, *lines = raw.split(b"\r\n")
    headers = _status(first.removeprefix(VERSION)) if first.startswith(VERSION) else {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.strip()
        if colon and name.isascii() and len(name.split()) == 1:
            headers[name.decode()] = text(value.strip(b" \t"))
    if SEQUENCE in headers:
        headers.pop("Status", None)
        headers.pop("Description", None)
    if REQUEST_INFO in headers and not _ends_in_request_info(raw):
        del headers[REQUEST_INFO]
    return headers or None


def _ends_in_request_info(raw: bytes) -> bool:
    return raw.removesuffix(b"\r\n\r\n").rpartition(b"\r\n")[2].startswith(_REQUEST_INFO)


def _status(words: bytes) -> dict[str, str]:
    status, _, description = words.strip().partition(b" ")
    if not status.isdigit():
        return {}
    return {"Status": text(status)} | ({"Description": text(description)} if description else {})


_Head = tuple[bytes, int, bytes, int, int]
"""The fields of the line before a message: the subject, the subscription, the reply subject, the
size of the headers, and the size of headers and content together."""


class Parser(ClientParser):
    """Parses the bytes that arrive, and passes each whole message and operation to the client."""

    def reset(self) -> None:
        """Forget the bytes that have arrived; the client calls this method for a new connection."""
        super().reset()
        self._head: _Head | None = None

    async def parse(self, data: bytes = b"") -> None:
        """Process received bytes; raise ProtocolError for bytes that no server sends."""
        buffer, at = self.buf, 0
        buffer += data
        while buffer is self.buf:  # Until the client gives up this connection.
            if self._head is None:
                end = buffer.find(b"\r\n", at)
                if end < 0:
                    break
                line, at = bytes(buffer[at:end]), end + 2
                if line.startswith((b"MSG ", b"HMSG ")):
                    self._head = _head(line)
                else:
                    await self._operate(line)
                    continue
            subject, sid, reply, header_size, size = self._head
            end = at + size
            if len(buffer) < end + 2:
                break
            headers = bytes(buffer[at : at + header_size]) if header_size else None
            content, at = bytes(buffer[at + header_size : end]), end + 2
            self._head = None
            await self.nc._process_msg(sid, subject, reply, content, headers)
        del buffer[:at]
        if self._head is None and len(buffer) > LINE_BYTES_MAX:
            raise ProtocolError("a line without an end")

    async def _operate(self, line: bytes) -> None:
        operation, _, rest = line.partition(b" ")
        match operation:
            case b"PING":
                await self.nc._process_ping()
            case b"PONG":
                await self.nc._process_pong()
            case b"+OK":
                pass
            case b"-ERR":
                await self.nc._process_err(text(rest.strip()).lower())
            case b"INFO":
                try:
                    await self.nc._process_info(json.loads(rest))
                except ValueError as error:
                    raise ProtocolError("an INFO that is no JSON") from error
            case _:
                raise ProtocolError(f"an unknown operation: {text(line[:40])}")


def _head(line: bytes) -> _Head:
    words = line.split(b" ")
    last = len(words) - 1
    is_plain = words[0] == b"MSG"
    header_at = last if is_plain else last - 1
    try:
        size = int(words[last])
        header_size = 0 if is_plain else int(words[header_at])
        if 3 <= header_at <= 4 and 0 <= header_size <= size:
            return words[1], int(words[2]), words[3] if header_at == 4 else b"", header_size, size
    except ValueError:
        pass
    raise ProtocolError(f"a malformed line: {text(line[:40])}")
