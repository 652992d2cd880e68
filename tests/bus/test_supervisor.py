"""Services as processes that are kept alive, tested with a small program in place of a service."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodepool.local.ports import HOST
from nodepool.local.supervisor import keep_service

PATIENCE_S = 20
PROGRAM = """
import os, socket, sys
with socket.create_connection(("127.0.0.1", int(os.environ["PORT"]))) as connection:
    connection.sendall(f"{os.getpid()}\\n".encode())
    connection.recv(1)
sys.exit("out of order")
"""
"""Reports its process id, and fails as soon as it is sent a byte or the connection closes."""


class Reports:
    """The programs that have connected, in order."""

    def __init__(self) -> None:
        self._connected: asyncio.Queue[tuple[int, asyncio.StreamWriter]] = asyncio.Queue()

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes down one program that connects."""
        self._connected.put_nowait((int(await reader.readline()), writer))

    async def next(self) -> tuple[int, asyncio.StreamWriter]:
        """The process id of the next program, and its connection."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._connected.get()


@asynccontextmanager
async def kept(folder: Path) -> AsyncIterator[tuple[Reports, asyncio.Task[None]]]:
    """The program as a service that is kept alive."""
    (folder / "faulty.py").write_text(PROGRAM)
    reports = Reports()
    async with await asyncio.start_server(reports.receive, HOST, 0) as listener:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(folder),
            "PORT": str(listener.sockets[0].getsockname()[1]),
            "NODEPOOL_LOG_FILE": str(folder / "faulty.log"),
        }
        keeper = asyncio.create_task(keep_service("faulty", environment))
        try:
            yield reports, keeper
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


def test_a_service_that_ends_is_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        async with kept(tmp_path) as (reports, _):
            # given a service that runs
            first, connection = await reports.next()

            # when it ends
            connection.close()

            # then another process takes its place
            second, connection = await reports.next()
            assert second != first
            connection.close()

    asyncio.run(story())

    assert "faulty ended with exit code 1; starting it again in 0.2 s" in capsys.readouterr().out
    assert (tmp_path / "faulty.err").read_text().startswith("out of order\n")


def test_a_service_is_stopped_with_its_keeper(tmp_path: Path) -> None:
    async def story() -> int:
        async with kept(tmp_path) as (reports, keeper):
            # given a service that runs
            process, connection = await reports.next()

            # when its keeper is cancelled
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            connection.close()
            return process

    # then its process is gone
    with pytest.raises(ProcessLookupError):
        os.kill(asyncio.run(story()), 0)
