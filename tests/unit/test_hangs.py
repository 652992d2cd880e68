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
        ending.setattr("nodepool.host.health._Server.process_request", end)
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
