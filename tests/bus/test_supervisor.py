"""Services as processes that are kept alive, tested with a small program in place of a service."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.harness import PATIENCE_S
from nodepool.local.ports import HOST
from nodepool.local.supervisor import Program, Restarts, ending, keep_running, last_line

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
            "PYTHONPATH": str(folder),
            "PORT": str(listener.sockets[0].getsockname()[1]),
        }
        program = Program("faulty", ("faulty",), environment, folder / "faulty.err")
        keeper = asyncio.create_task(keep_running(program))
        try:
            yield reports, keeper
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


async def test_a_service_that_ends_is_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with kept(tmp_path) as (reports, _):
        # given a service that runs
        first, connection = await reports.next()

        # when it ends
        connection.close()

        # then another process takes its place
        second, connection = await reports.next()
        assert second != first
        connection.close()

    assert "faulty ended with exit code 1; starting it again in 0.2 s" in capsys.readouterr().out
    assert (tmp_path / "faulty.err").read_text().startswith("out of order\n")


async def test_a_service_is_stopped_with_its_keeper(tmp_path: Path) -> None:
    async with kept(tmp_path) as (reports, keeper):
        # given a service that runs
        process, connection = await reports.next()

        # when its keeper is cancelled
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        connection.close()

    # then its process is gone
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_a_service_that_keeps_ending_is_reported_with_what_it_said_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with kept(tmp_path) as (reports, _):
        # given a service that ends whenever it starts
        for _ in range(3):
            _, connection = await reports.next()
            connection.close()

        # when it is started for the fourth time
        _, connection = await reports.next()
        connection.close()

    # then the third end was reported with the last line of its error log
    log = tmp_path / "faulty.err"
    assert capsys.readouterr().out.splitlines()[:3] == [
        "faulty ended with exit code 1; starting it again in 0.2 s",
        "faulty ended with exit code 1; starting it again in 0.4 s",
        "faulty ended with exit code 1, 3 times in a row: out of order"
        f" (see {log}); starting it again in 0.8 s",
    ]


def test_only_a_service_that_was_ready_for_a_while_is_started_again_at_once() -> None:
    restarts = Restarts()
    for _ in range(10):
        restarts = restarts.count_end(ready_s=0)

    assert restarts == Restarts(early=10, pause_s=5.0)
    assert restarts.count_end(ready_s=4.9) == Restarts(early=11, pause_s=5.0)
    assert restarts.count_end(ready_s=5.1) == Restarts()


def test_the_last_line_that_says_something_is_found(tmp_path: Path) -> None:
    log = tmp_path / "quota.err"
    assert last_line(log) == ""
    log.write_bytes(b"x" * 10_000 + b"\nquota: first\nquota: \xff last\n\n")

    assert last_line(log) == "quota: \ufffd last"


def test_a_service_that_ends_without_a_word_is_reported_as_that() -> None:
    text = ending("quota", -9, Restarts(3, 0.8), "", Path("quota.err"))

    assert text == (
        "quota ended with exit code -9, 3 times in a row: without a word (see quota.err);"
        " starting it again in 0.8 s"
    )
