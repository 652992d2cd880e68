"""Ways to the gateway for a user of an organisation: one waits for replies, one does not."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from nodepool.nats.wire.access import Access
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.library import Msg

REPLY_S = 60.0


class NotStoredError(Exception):
    """The gateway has refused a command; the text is its reply."""


class DoorSender:
    """Sends commands to the gateway; as many as `window` wait for their acknowledgement.

    The methods are those of `Publisher`, which stores in the log itself.
    """

    def __init__(self, connection: BusClient, window: int) -> None:
        self._connection = connection
        self._window = asyncio.Semaphore(window)
        self._inbox = connection.new_inbox()
        self._prefix = len(self._inbox) + 1
        self._count = 0
        self._pending: dict[int, asyncio.Future[bytes]] = {}

    async def open(self) -> None:
        """Subscribe to the replies."""
        await self._connection.subscribe(f"{self._inbox}.*", cb=self._receive)

    async def _receive(self, message: Msg) -> None:
        self._pending[int(message.subject[self._prefix :])].set_result(message.data)

    async def publish(
        self, subject: str, content: bytes, headers: Mapping[str, str] | None = None
    ) -> int:
        """Return the position of a command once it is acknowledged."""
        del headers  # The gateway takes nothing from them that the content has.
        async with self._window, asyncio.timeout(REPLY_S):
            self._count += 1
            number = self._count
            reply = self._pending[number] = asyncio.get_running_loop().create_future()
            await self._connection.publish(subject, content, reply=f"{self._inbox}.{number}")
            try:
                answer = json.loads(await reply or b"{}")
            finally:
                del self._pending[number]
        if "position" not in answer:
            raise NotStoredError(str(answer))
        return int(answer["position"])


class Raw:
    """A connection that writes as fast as the server takes it, and reads only when asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, lines: bytes) -> None:
        """Write lines of the protocol of NATS, and wait until the system has taken them."""
        self._writer.write(lines)
        await self._writer.drain()

    async def until_taken(self) -> None:
        """Return once the server has read all lines; what it sends meanwhile is dropped."""
        await self.send(b"PING\r\n")
        while (line := await self._reader.readline()) != b"PONG\r\n":
            if not line:
                raise ConnectionError("the server has closed the connection")
            if line.startswith((b"MSG", b"HMSG")):
                await self._reader.readexactly(int(line.split()[-1]) + 2)


@asynccontextmanager
async def raw(url: str, access: Access) -> AsyncIterator[Raw]:
    """A connection of a user with a key, without a client that would protect the server."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        key, signature = access.sign(info["nonce"])
        hello: dict[str, object] = {"nkey": key, "sig": signature.decode()}
        hello |= {"verbose": False, "headers": True, "no_responders": True}
        writer.write(b"CONNECT %b\r\n" % json.dumps(hello).encode())
        connection = Raw(reader, writer)
        await connection.until_taken()
        yield connection
    finally:
        with suppress(OSError):
            writer.close()
