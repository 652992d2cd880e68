"""A way to a server that can be shut for a while, as a network or a lid can."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nodepool.local.ports import HOST
from support.loopback import leading_to, listening, pass_on


class Gate:
    """The way; `url` is the address of its near end."""

    def __init__(self, url: str) -> None:
        self.url = ""
        self._server = int(url.rpartition(":")[2])
        self._is_open = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._is_open.set()

    def shut(self) -> None:
        """Cut each connection, and let no new one through."""
        self._is_open.clear()
        for writer in self._open:
            writer.close()

    def open(self) -> None:
        """Let connections through again."""
        self._is_open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead a connection to the server."""
        await self._is_open.wait()
        async with leading_to(self._server) as (there, back):
            self._open |= {writer, back}
            try:
                await asyncio.gather(pass_on(reader, back), pass_on(there, writer))
            finally:
                self._open -= {writer, back}


@asynccontextmanager
async def gate_to(url: str) -> AsyncIterator[Gate]:
    """A gate to the server at an address, which is open at first."""
    gate = Gate(url)
    async with listening(gate.serve) as port:
        gate.url = f"nats://{HOST}:{port}"
        yield gate
