"""The HTTP pages of a service: /metrics, /livez and /readyz."""

import _thread
import asyncio
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from wsgiref.simple_server import make_server

from nodepool.host.exposition import Wanted, choose_format
from nodepool.host.logs import Logger
from nodepool.host.page_server import PageRequest, PageServer
from nodepool.host.protection import ServerCertificate
from nodepool.host.settings import Settings, SettingsError
from nodepool.host.silence import Silence

Environ = dict[str, object]
StartResponse = Callable[..., object]
Page = Callable[[Wanted], list[bytes] | None]
"""Makes the page of metrics, in pieces; None if too many pages are being made."""
TURN_S = 1.0
"""How often the event loop shows that it runs, and checks that the server runs."""
SERVER_SILENT_S = 30.0
"""After a silence of this length, the HTTP server is replaced."""


class HealthServer:
    """Serves the pages in threads of its own, from its creation until `close`.

    The event loop and the server watch each other while `watch` runs: `/livez` says if the event
    loop hangs, and a server that hangs is replaced.

    With a certificate, the port takes HTTPS as well, and the metrics can be read that way only. The
    other two pages say nothing secret, and a probe needs no authority or token for them.

    metrics: makes the page of metrics, in one of the threads.
    obstacle: why the service is not ready; None if it is ready.

    Raises SettingsError if it cannot listen, for example because the port is in use.
    """

    def __init__(
        self, settings: Settings, metrics: Page, obstacle: Callable[[], str | None]
    ) -> None:
        self._metrics = metrics
        self._obstacle = obstacle
        self._host, self._hang_s = settings.metrics_host, settings.hang_seconds
        self._protection = settings.protection
        self._loop = Silence()
        self._server = self._serve(settings.metrics_port)

    def _serve(self, port: int) -> PageServer:
        try:
            server = make_server(self._host, port, self._respond, PageServer, PageRequest)
        except OSError as error:
            reason = error.strerror or str(error)
            address = f"{self._host}:{port}"
            raise SettingsError(f"cannot serve metrics on {address}: {reason}") from error
        server.loop, server.certificate = self._loop, ServerCertificate(self._protection)
        _thread.start_new_thread(server.serve, ())
        return server

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._server.server_port

    async def watch(self, stop: asyncio.Event, log: Logger) -> None:
        """Show that the event loop turns, and replace a server that does not respond.

        Sets `stop` when this ends, and raises the error that ended it, such as SettingsError if the
        server cannot be replaced, or MemoryError if the pages find no memory.
        """
        try:
            while True:
                await asyncio.sleep(TURN_S)
                self.turn(time.monotonic(), log)
        finally:
            stop.set()

    def turn(self, now: float, log: Logger) -> None:
        """Show once that the event loop turns, and replace a server that is silent too long.

        Raises MemoryError if the pages find no memory: a service without its pages must end.
        """
        self._loop.end()
        if self._server.is_starved():
            raise MemoryError("no memory is left for the pages /metrics, /livez and /readyz")
        silent_s = self._server.silence.look(now)
        if silent_s > SERVER_SILENT_S:
            port = self.port
            self._server.end()
            self._server = self._serve(port)
            log.error("pages did not respond", port=port, seconds=round(silent_s))

    @property
    def _hang(self) -> str | None:
        """Return why the service is not alive, as one line; None if it is."""
        silent_s = self._loop.seconds
        if silent_s <= self._hang_s:
            return None
        return f"the event loop has not turned for {round(silent_s)} seconds"

    def _respond(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        response = _Response(start, with_content=environ.get("REQUEST_METHOD") != "HEAD")
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return response.text(HTTPStatus.METHOD_NOT_ALLOWED, "use GET", ("Allow", "GET, HEAD"))
        match environ.get("PATH_INFO"):
            case "/metrics":
                return self._respond_metrics(environ, response)
            case "/livez":
                hang = self._hang
                if hang is None:
                    return response.text(HTTPStatus.OK, "ok")
                return response.text(HTTPStatus.SERVICE_UNAVAILABLE, hang)
            case "/readyz":
                obstacle = self._hang or self._obstacle()
                if obstacle is None:
                    return response.text(HTTPStatus.OK, "ok")
                line = " ".join(obstacle.split())
                return response.text(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {line}")
        return response.text(HTTPStatus.NOT_FOUND, "see /metrics, /livez, /readyz")

    def _respond_metrics(self, environ: Environ, response: "_Response") -> Iterable[bytes]:
        if self._protection.cert_file and "HTTPS" not in environ:
            return response.text(HTTPStatus.FORBIDDEN, "use https")
        if not self._protection.admits(str(environ.get("HTTP_AUTHORIZATION", ""))):
            text = "show the token of this service: Authorization: Bearer TOKEN"
            return response.text(HTTPStatus.UNAUTHORIZED, text, ("WWW-Authenticate", "Bearer"))
        headers = (str(environ.get(f"HTTP_{name}", "")) for name in ("ACCEPT", "ACCEPT_ENCODING"))
        wants = choose_format(*headers)
        page = self._metrics(wants)
        if page is None:
            return response.text(HTTPStatus.SERVICE_UNAVAILABLE, "too many scrapers; try later")
        encoding = [("Content-Encoding", "gzip")] if wants.gzip else []
        # Caches must know which request headers the page depends on.
        vary = ("Vary", "Accept, Accept-Encoding")
        return response.pieces(HTTPStatus.OK, wants.content_type, page, vary, *encoding)

    def close(self) -> None:
        """Stop listening."""
        self._server.end()


class _Response:
    """The response to one request; `with_content` is False for HEAD, which gets only headers."""

    def __init__(self, start: StartResponse, *, with_content: bool) -> None:
        self._start = start
        self._with_content = with_content

    def text(self, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
        """Respond with a line of text."""
        content = [f"{text}\n".encode()]
        return self.pieces(status, "text/plain; charset=utf-8", content, *headers)

    def pieces(
        self, status: HTTPStatus, kind: str, content: list[bytes], *headers: tuple[str, str]
    ) -> Iterable[bytes]:
        """Respond with content in pieces."""
        length = str(sum(map(len, content)))
        fields = [("Content-Type", kind), ("Content-Length", length), *headers]
        self._start(f"{status.value} {status.phrase}", fields)
        return content if self._with_content else []
