"""Runs the console: one process on the machine of its users."""

import asyncio
import os
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

from console.host.accounts import Accounts
from console.host.doors import Doors
from console.host.guard import Guard
from console.host.settings import LOOPBACK, ConsoleSettings, read_console
from console.host.telemetry import NAME, Telemetry
from console.host.web import Site
from nodepool.contract import console_metrics
from nodepool.contract import metrics as contract
from nodepool.contract.metrics import Sample
from nodepool.host.process import ending_with_a_line, run_until_stopped
from nodepool.host.settings import SettingsError
from nodepool.host.version import version_of
from nodepool.nats.wire.waiting import until_first

BACKLOG: Final = 128
UNSENT_BYTES: Final = 64 * 1024
"""The send buffer of each connection, in bytes; Linux makes the buffer twice as large."""
UNTAKEN_S: Final = 30
"""After how many seconds Linux ends a connection whose browser acknowledges no data.

Otherwise the connection of a browser that has stopped reading would stay open."""
STOP_S: Final = 2
"""How long requests may take to end at the end, and then those cut off, in seconds."""


def main() -> None:
    """Run the console until SIGTERM or SIGINT; settings come from the environment."""
    with ending_with_a_line(NAME):
        settings = read_console(os.environ)
        run_until_stopped(lambda stop: Console(settings).run(stop), settings.service)


class Console:
    """One console.

    fault: why it serves no pages; empty while it serves them.
    url: the address of its pages.
    port: the port of metrics and health; -1 for none.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._telemetry = telemetry = Telemetry(settings.service, self._samples)
        self.accounts = Accounts(settings, telemetry.log)
        self._socket = _listen(settings.port)
        port = self._socket.getsockname()[1]
        self.url = f"http://{LOOPBACK}:{port}"
        doors = Doors(port, settings.url)
        self._site = Site(self.accounts, telemetry, doors, settings.openid)
        self._guard = Guard(self._site.app(), doors.hosts)
        self._server = _make_server(self._guard)
        self.accounts.links.base = self.url
        self.fault = "starting"
        self.port = -1

    async def run(self, stop: asyncio.Event) -> None:
        """Serve pages until `stop` is set; a fault of the bus shows on the pages."""
        telemetry = self._telemetry
        self.port = telemetry.serve(self.obstacle)
        telemetry.log.info("started", version=version_of(), **self._settings.list_settings())
        async with telemetry.at_work(stop):
            try:
                self.accounts.refresh(self._settings.keys)
                await until_first(self._leave(stop), self._serve(), self.accounts.keep_current())
            finally:
                self._socket.close()
                await self.accounts.close()

    def obstacle(self) -> str | None:
        """Return why the console is not ready, as one line; None if it is ready."""
        return self.fault or None

    async def _leave(self, stop: asyncio.Event) -> None:
        """Return once `stop` is set and the open pages have ended, which closing accounts ends."""
        await stop.wait()
        self._telemetry.log.info("stopping")
        self._guard.is_ending = True
        await self.accounts.close()
        await _hang_up(self._server)

    async def _serve(self) -> None:
        self.fault = ""
        self._telemetry.log.info("ready", url=self.url)
        server = self._server
        try:
            await server._serve([self._socket])  # `serve` would take over the signals.
        except asyncio.CancelledError:
            server.force_exit = True
            await server.shutdown([self._socket])
            raise

    def _samples(self) -> Iterator[Sample]:
        """Yield the samples of a scrape, which runs in its own thread."""
        yield Sample(contract.BUILD_INFO, (version_of(),), 1)
        yield Sample(contract.READY, (), self.obstacle() is None)
        yield Sample(console_metrics.SESSIONS, (), len(self.accounts.sessions))
        yield Sample(console_metrics.STREAMS, (), self._site.streams.count)
        yield Sample(console_metrics.MIRRORS, (), len(self.accounts))


def _make_server(app: Guard) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="off",
        ws="none",
        timeout_keep_alive=65,
        timeout_graceful_shutdown=STOP_S,
        h11_max_incomplete_event_size=16 * 1024,
    )
    return uvicorn.Server(config)


async def _hang_up(server: uvicorn.Server) -> None:
    """Let requests end that are answered, then break the connections of those that wait.

    The server would report an error for each request that it has to cancel.
    """
    state = server.server_state
    for connection in list(state.connections):
        connection.shutdown()
    await _wait_for(state.tasks)
    for connection in list(state.connections):
        connection.transport.abort()
    await _wait_for(state.tasks)


async def _wait_for(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait([*tasks], timeout=STOP_S)


def _listen(port: int) -> socket.socket:
    """Return a socket on this machine alone; raise SettingsError if the port cannot be had."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((LOOPBACK, port))
        # Without a bound, the system would keep megabytes for each browser that takes no frames.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_S * 1000)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        text = f"port {port} cannot be listened on ({error.strerror})"
        raise SettingsError(f"NODEPOOL_CONSOLE_PORT: {text}; choose another") from None
    made.setblocking(False)
    return made
