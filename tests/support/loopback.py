"""Servers of a test's own on the loopback, most of which lead to another server there."""

import asyncio
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Self

from nodepool.local.ports import HOST
from testbed.ports import free_port

BOUND_S = 30.0
CHUNK = 64 * 1024

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What is to become of a connection, which is closed once that returns or ends in an OSError."""


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server inside the context; its connections end with it."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # One side or the other is gone, or all of this ends.
        finally:
            tasks.discard(task)
            writer.close()

    port = free_port()
    listener = await asyncio.start_server(accept, HOST, port, ssl=tls)
    try:
        yield port
    finally:
        listener.close()
        left = tuple(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@asynccontextmanager
async def leading_to(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a port of the loopback, which is closed with the context."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int = sys.maxsize
) -> None:
    """Passes bytes on to their end, and the end as well; or so many of them, and no end.

    Returns as well where either side is gone.
    """
    with suppress(OSError):
        while most > 0 and (chunk := await reader.read(min(CHUNK, most))):
            writer.write(chunk)
            await writer.drain()
            most -= len(chunk)
    if most > 0:
        writer.write_eof()


class ThreadedServer:
    """A server in a thread of its own, for tests that run in no event loop; use it in `with`.

    port: its own, once it runs.
    """

    def __init__(self, serve: Serve) -> None:
        self.port = 0
        self._serve = serve
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._open())
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._wait(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND_S)
        self._loop.close()

    def _wait(self, work: Coroutine[object, object, None]) -> None:
        """Returns once this is done in its thread; raises what that raises."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(BOUND_S)

    async def _open(self) -> None:
        """Begins to listen; what is entered into the stack is left again at the end."""
        self.port = await self._stack.enter_async_context(listening(self._serve))
