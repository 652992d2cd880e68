"""A way to a server on which nothing passes any more from some byte on, in either direction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from bus.tls import HOST

READ_BYTES = 4096


@asynccontextmanager
async def stalling(url: str, after: int) -> AsyncIterator[str]:
    """An address that leads to the server at `url`, for programs that are not to come to an end.

    after: how many bytes of the server's pass on each connection; what is left stays open and
        silent, as behind a network that loses everything.
    """
    server, tasks = urlsplit(url), set[asyncio.Task[None]]()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(server.hostname, server.port)
        sending = asyncio.create_task(_pass_on(reader, back))
        tasks.add(sending)
        try:
            await _pass_on(there, writer, after)
            sending.cancel()
            await asyncio.Event().wait()
        finally:
            writer.close()
            back.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(lead(reader, writer)))

    listener = await asyncio.start_server(accept, HOST, 0)
    try:
        yield f"nats://{HOST}:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None = None
) -> None:
    """Passes bytes on to their end, or so many of them."""
    passed = 0
    with suppress(OSError):
        while most is None or passed < most:
            size = READ_BYTES if most is None else min(READ_BYTES, most - passed)
            content = await reader.read(size)
            if not content:
                return
            passed += len(content)
            writer.write(content)
            await writer.drain()
