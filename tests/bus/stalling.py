"""A way to a server on which nothing passes any more from some byte on, in either direction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nodepool.local.ports import HOST
from support.loopback import leading_to, listening, pass_on


@asynccontextmanager
async def stalling(url: str, after: int) -> AsyncIterator[str]:
    """An address that leads to the server at `url`, for programs that are not to come to an end.

    after: how many bytes of the server's pass on each connection; what is left stays open and
        silent, as behind a network that loses everything.
    """
    server = int(url.rpartition(":")[2])

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with leading_to(server) as (there, back):
            sending = asyncio.create_task(pass_on(reader, back))
            try:
                await pass_on(there, writer, after)
                sending.cancel()
                await asyncio.Event().wait()
            finally:
                sending.cancel()

    async with listening(lead) as port:
        yield f"nats://{HOST}:{port}"
