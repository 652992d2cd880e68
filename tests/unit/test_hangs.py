"""What hangs in a process: its event loop, which `/livez` names, and the server of its pages."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.host.health import SERVER_SILENT_S, HealthServer
from nodepool.host.logs import ServiceLog
from nodepool.host.page_server import STARVED_MAX, PageRequest
from nodepool.host.settings import Settings
from nodepool.host.silence import STEP_MAX_S, Silence
from unit.test_health import page

HANG_S = 1


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ServiceLog]:
    opened = ServiceLog("quota", Settings(log_file=str(tmp_path / "quota.log")))
    yield opened
    opened.close()


@asynccontextmanager
async def watched(log: ServiceLog, *, hang_seconds: int = HANG_S) -> AsyncIterator[HealthServer]:
    """A server of pages, watched from the event loop that runs this."""
    settings = Settings(metrics_port=0, hang_seconds=hang_seconds)
    server = HealthServer(settings, lambda _: [], lambda: None)
    watching = asyncio.create_task(server.watch(asyncio.Event(), log.logger))
    try:
        yield server
    finally:
        watching.cancel()
        server.close()


def server_client(port: int) -> socket.socket:
    """A client of the server, which has connected and asks for nothing."""
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def read_to_the_end(port: int) -> bytes:
    """What a client of `/livez` gets until its connection ends: the server has counted it then."""
    with server_client(port) as client, client.makefile("rb") as response:
        client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        return response.read()


def page_once_it_is(port: int, path: str, status: int) -> str:
    """The page as soon as it has a status; the test's time limit bounds the wait."""
    while (response := page(port, path))[0] != status:
        pass
    return response[1]


@pytest.mark.timeout(60)
async def test_a_service_whose_event_loop_hangs_says_that_it_is_not_alive(log: ServiceLog) -> None:
    async with watched(log) as server:
        # given a service whose event loop turns
        assert await asyncio.to_thread(page, server.port, "/livez") == (200, "ok\n")

        # when the event loop hangs, as in this wait, then its pages say so
        hang = page_once_it_is(server.port, "/livez", 503)
        assert hang.startswith("the event loop has not turned for ")
        assert page(server.port, "/readyz")[1].startswith("not ready: the event loop has not")

        # and once it turns again the service is alive
        assert await asyncio.to_thread(page_once_it_is, server.port, "/livez", 200) == "ok\n"


@pytest.mark.timeout(60)
def test_a_thread_that_dies_before_it_says_that_it_has_begun_keeps_no_other_client_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a server of pages, in whose process memory ends while the thread of a client starts
    server = HealthServer(Settings(metrics_port=0), lambda _: [], lambda: None)
    died = threading.Event()

    def die(*_: object, **__: object) -> int:
        died.set()
        return 0

    with monkeypatch.context() as starting:
        starting.setattr("_thread.start_new_thread", die)
        # Python 3.13 starts the threads of the threading module with another function.
        for name in ("_start_new_thread", "_start_joinable_thread"):
            starting.setattr(f"threading.{name}", die, raising=False)
        with server_client(server.port):
            assert died.wait(30)

    # when another client comes, then it has its page, and the server can be closed
    assert page(server.port, "/livez") == (200, "ok\n")
    server.close()


@pytest.mark.timeout(60)
def test_a_service_ends_if_no_client_gets_a_page_for_want_of_memory(
    log: ServiceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starve(*_: object) -> list[bytes]:
        raise MemoryError

    # given a server of pages that finds no memory for clients, but once
    server = HealthServer(Settings(metrics_port=0), lambda _: [], lambda: None)
    for starved in (STARVED_MAX - 1, 0, STARVED_MAX):
        with monkeypatch.context() as starving:
            starving.setattr(PageRequest, "get_environ", starve)
            assert [read_to_the_end(server.port) for _ in range(starved)] == [b""] * starved
        if starved < STARVED_MAX:
            server.turn(0.0, log.logger)
            assert read_to_the_end(server.port).endswith(b"\r\n\r\nok\n")

    # when the event loop looks at it
    # then that ends the service, which says why
    with pytest.raises(MemoryError, match="no memory is left for the pages /metrics, /livez"):
        server.turn(0.0, log.logger)
    server.close()


@pytest.mark.timeout(60)
def test_a_service_ends_if_the_thread_of_a_client_never_begins_and_no_other_gets_a_page(
    log: ServiceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server of pages, in whose process the thread of a client dies before it begins
    server = HealthServer(Settings(metrics_port=0), lambda _: [], lambda: None)
    died = threading.Event()

    def die(*_: object) -> int:
        died.set()
        return 0

    with monkeypatch.context() as starting:
        starting.setattr("_thread.start_new_thread", die)
        with server_client(server.port):
            assert died.wait(30)

    # when the event loop looks at it for some turns, then the service lives on until the last
    for turn in range(STARVED_MAX - 1):
        server.turn(float(turn), log.logger)
    with pytest.raises(MemoryError):
        server.turn(float(STARVED_MAX), log.logger)
    server.close()


@pytest.mark.timeout(60)
def test_a_server_that_does_not_respond_is_made_again(
    log: ServiceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server of pages whose thread has ended
    server = HealthServer(Settings(metrics_port=0), lambda _: [], lambda: None)
    port, ended = server.port, threading.Event()

    def end(*_: object) -> None:
        ended.set()
        raise SystemExit

    with monkeypatch.context() as ending:
        ending.setattr("nodepool.host.page_server.PageServer.process_request", end)
        with server_client(port):
            assert ended.wait(30)

    # when the event loop has looked at it for a while
    turns = int(SERVER_SILENT_S) + 2
    for turn in range(turns):
        server.turn(float(turn), log.logger)

    # then there are pages on the same port
    assert page(port, "/livez") == (200, "ok\n")
    server.close()


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), max_size=50))
def test_a_silence_is_no_longer_than_its_listener_was_at_work(steps: list[float | None]) -> None:
    # given looks after some seconds each, and signs of life between
    silence, now, expected = Silence(), 0.0, 0.0
    silence.look(now)

    for step in steps:
        if step is None:
            silence.end()
            expected = 0.0
        else:
            # when the listener was stopped for long, then that counts as no more than a step
            now += step
            expected += min(step, STEP_MAX_S)
            assert silence.look(now) == pytest.approx(expected, abs=1e-3)
