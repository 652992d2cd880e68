"""The HTTP pages of a service: /metrics, /livez and /readyz."""

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from nodepool.host.exposition import Wanted, wanted
from nodepool.host.settings import Settings, SettingsError

Environ = dict[str, object]
StartResponse = Callable[..., object]
Page = Callable[[Wanted], list[bytes] | None]
"""The page of metrics in pieces; None where too many are being made."""
CLIENTS_MAX = 32
"""The most clients at a time; one more ends the connection that has been open for longest."""


class HealthServer:
    """Serves the pages in threads of its own, from the moment it is made until `close`.

    metrics: makes the page of metrics, in one of those threads.
    obstacle: why the service is not ready; None where it is.

    Raises SettingsError where it cannot listen, as on a port that is taken.
    """

    def __init__(
        self, settings: Settings, metrics: Page, obstacle: Callable[[], str | None]
    ) -> None:
        self._metrics = metrics
        self._obstacle = obstacle
        host, port = settings.metrics_host, settings.metrics_port
        try:
            self._server = make_server(host, port, self._respond, _Server, _Request)
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsError(f"cannot serve metrics on {host}:{port}: {reason}") from error
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def _respond(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        response = _Response(start, with_content=environ.get("REQUEST_METHOD") != "HEAD")
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return response.text(HTTPStatus.METHOD_NOT_ALLOWED, "use GET", ("Allow", "GET, HEAD"))
        match environ.get("PATH_INFO"):
            case "/metrics":
                return self._respond_metrics(environ, response)
            case "/livez":
                return response.text(HTTPStatus.OK, "ok")
            case "/readyz":
                obstacle = self._obstacle()
                if obstacle is None:
                    return response.text(HTTPStatus.OK, "ok")
                line = " ".join(obstacle.split())
                return response.text(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {line}")
        return response.text(HTTPStatus.NOT_FOUND, "see /metrics, /livez, /readyz")

    def _respond_metrics(self, environ: Environ, response: "_Response") -> Iterable[bytes]:
        headers = (str(environ.get(f"HTTP_{name}", "")) for name in ("ACCEPT", "ACCEPT_ENCODING"))
        wants = wanted(*headers)
        page = self._metrics(wants)
        if page is None:
            return response.text(HTTPStatus.SERVICE_UNAVAILABLE, "too many scrapers; try later")
        encoding = [("Content-Encoding", "gzip")] if wants.gzip else []
        # Caches between must know what the page depends on.
        vary = ("Vary", "Accept, Accept-Encoding")
        return response.pieces(HTTPStatus.OK, wants.content_type, page, vary, *encoding)

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()


class _Response:
    """The response to one request; `with_content` is False for HEAD, which gets its headers."""

    def __init__(self, start: StartResponse, *, with_content: bool) -> None:
        self._start = start
        self._with_content = with_content

    def text(self, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
        """Responds with a line of text."""
        content = [f"{text}\n".encode()]
        return self.pieces(status, "text/plain; charset=utf-8", content, *headers)

    def pieces(
        self, status: HTTPStatus, kind: str, content: list[bytes], *headers: tuple[str, str]
    ) -> Iterable[bytes]:
        """Responds with content in pieces."""
        length = str(sum(map(len, content)))
        fields = [("Content-Type", kind), ("Content-Length", length), *headers]
        self._start(f"{status.value} {status.phrase}", fields)
        return content if self._with_content else []


class _Server(ThreadingMixIn, WSGIServer):
    """Responds to each client in a thread of its own: a slow one keeps no other waiting.

    Many slow ones have no more than CLIENTS_MAX threads, and never keep a probe from its page.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = CLIENTS_MAX

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # As make_server calls it.
        self._clients: dict[socket.socket, None] = {}
        self._changing = threading.Lock()

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # No datagrams.
        """Starts the thread of a client."""
        with self._changing:
            if len(self._clients) >= CLIENTS_MAX:
                oldest = next(iter(self._clients))
                del self._clients[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._clients[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]  # As above.
        """Ends the connection of a client."""
        with self._changing:
            self._clients.pop(request, None)
        super().shutdown_request(request)


class _Request(WSGIRequestHandler):
    timeout = 5.0
    """How many seconds a client may be silent."""

    def handle(self) -> None:
        """Responds; a client that is silent or gone has no response."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a scrape is no event."""
