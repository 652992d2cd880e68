"""A TCP proxy on the loopback whose connections can be cut, or stand still."""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Self

from nodepool.local.ports import HOST

CHUNK = 64 * 1024
BOUND_S = 10.0


class Proxy:
    """Passes on what is sent to its port to another port of the loopback, until it is told else.

    port: its own.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open = asyncio.Event()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._listen())
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND_S)
        self._loop.close()

    def cut(self) -> None:
        """Ends each connection, and each that is made from now on."""
        self._wait(self._set(refuses=True, is_open=True))

    def freeze(self) -> None:
        """From now on nothing comes through, and nothing is closed: packets are lost."""
        self._wait(self._set(refuses=False, is_open=False))

    def mend(self) -> None:
        """Everything comes through again, also what has waited."""
        self._wait(self._set(refuses=False, is_open=True))

    def _wait(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(BOUND_S)

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        self._abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set(self, *, refuses: bool, is_open: bool) -> None:
        self._refuses = refuses
        if refuses:
            self._abort()
        if is_open:
            self._open.set()
        else:
            self._open.clear()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._connect(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # Of one side or the other; both are closed below.
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            return
        await self._open.wait()
        there, back = await asyncio.open_connection(HOST, self._target)
        self._writers |= {writer, back}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, back))
                both.create_task(self._pass(there, writer))
        except* OSError:
            pass
        finally:
            self._writers -= {writer, back}
            back.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            await self._open.wait()
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
