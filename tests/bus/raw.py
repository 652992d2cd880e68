"""A sender that keeps to no rule but those of the server: any bytes as a subject or as headers."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

HELLO = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "raw"}


class RawSender:
    """A connection that writes the protocol by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._inbox = f"_INBOX.{os.urandom(8).hex()}".encode()

    async def begin(self) -> None:
        """Says hello, and subscribes to the replies."""
        await self._reader.readline()
        self._writer.write(b"CONNECT " + json.dumps(HELLO).encode() + b"\r\n")
        self._writer.write(b"SUB " + self._inbox + b" 1\r\n")

    async def store(self, subject: bytes, content: bytes = b"", headers: bytes = b"") -> int:
        """Publishes a message and returns the position at which the server has stored it."""
        sizes = b"%d %d" % (len(headers), len(headers) + len(content))
        line = b"HPUB %b %b %b" if headers else b"PUB %b %b %b"
        size = sizes if headers else b"%d" % len(content)
        self._writer.write(line % (subject, self._inbox, size) + b"\r\n")
        self._writer.write(headers + content + b"\r\n")
        reply = json.loads(await self._reply())
        return int(reply["seq"])

    async def _reply(self) -> bytes:
        while True:
            words = (await self._reader.readline()).split()
            match words[:1]:
                case [b"PING"]:
                    self._writer.write(b"PONG\r\n")
                case [b"MSG"]:
                    content = await self._reader.readexactly(int(words[-1]) + 2)
                    return content[:-2]
                case [b"HMSG" | b"-ERR"] | []:
                    raise AssertionError(f"the server did not store it: {words}")


@asynccontextmanager
async def raw_sender(url: str) -> AsyncIterator[RawSender]:
    """A sender that is connected to the server."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    sender = RawSender(reader, writer)
    await sender.begin()
    try:
        yield sender
    finally:
        writer.close()
