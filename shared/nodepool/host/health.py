"""The HTTP pages of a service: /metrics, /livez and /readyz."""

import _thread
import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from nodepool.host.exposition import Wanted, choose_format
from nodepool.host.logs import Logger
from nodepool.host.protection import Protection, ServerCertificate
from nodepool.host.settings import Settings, SettingsError
from nodepool.host.silence import Silence

if TYPE_CHECKING:
    import ssl

Environ = dict[str, object]
StartResponse = Callable[..., object]
Page = Callable[[Wanted], list[bytes] | None]
"""Makes the page of metrics, in pieces; None if too many pages are being made."""
CLIENTS_MAX = 32
"""The most clients at a time; a further client ends the connection that has been open longest."""
TURN_S = 1.0
"""How often the event loop shows that it runs, and checks that the server runs."""
TLS_HANDSHAKE = b"\x16"
"""The first byte that a client sends if it speaks TLS: https://www.rfc-editor.org/rfc/rfc8446#section-5.1."""
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

    def _serve(self, port: int) -> "_Server":
        try:
            server = make_server(self._host, port, self._respond, _Server, _Request)
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
        server cannot be replaced.
        """
        try:
            while True:
                await asyncio.sleep(TURN_S)
                self.turn(time.monotonic(), log)
        finally:
            stop.set()

    def turn(self, now: float, log: Logger) -> None:
        """Show once that the event loop turns, and replace a server that is silent too long."""
        self._loop.end()
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


class _Server(ThreadingMixIn, WSGIServer):
    """Responds to each client in a thread of its own: no client waits for a slow client.

    Slow clients occupy at most CLIENTS_MAX threads, and never keep a probe from getting its page.

    loop: for how long the event loop has been silent, as observed by the server's thread.
    silence: for how long the server's thread has been silent, as observed by the event loop.
    certificate: what it shows to clients that speak TLS.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = CLIENTS_MAX

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # make_server calls it so.
        self.loop, self.silence = Silence(), Silence()
        self.certificate = ServerCertificate(Protection())
        self._has_ended = False
        self._clients: dict[socket.socket, None] = {}
        self._changing = threading.Lock()

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # No datagrams.
        """Start the thread of a client; respond in this thread if no other can be started."""
        with self._changing:
            if len(self._clients) >= CLIENTS_MAX:
                oldest = next(iter(self._clients))
                del self._clients[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._clients[request] = None
        # `Thread.start` would never return if the thread dies before it has started, for example
        # because memory runs out: this server would never respond again.
        try:
            _thread.start_new_thread(self.process_request_thread, (request, client_address))
        except (RuntimeError, MemoryError):  # There is no memory for another thread's stack.
            self.process_request_thread(request, client_address)

    def finish_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # As above.
        """Respond to a client, with TLS if the client begins with it."""
        context = self.certificate.context()
        request.settimeout(_Request.timeout)
        if context is None or request.recv(1, socket.MSG_PEEK) != TLS_HANDSHAKE:
            super().finish_request(request, client_address)
            return
        encrypted = self._encrypt(context, request)
        try:
            encrypted.do_handshake()
            super().finish_request(encrypted, client_address)
        finally:
            self.shutdown_request(encrypted)

    def _encrypt(self, context: "ssl.SSLContext", request: socket.socket) -> "ssl.SSLSocket":
        """Return the socket that takes the place of a client's, before the handshake."""
        with self._changing:
            self._clients.pop(request, None)
            encrypted = context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
            self._clients[encrypted] = None
        return encrypted

    def serve(self) -> None:
        """Serve until `end`, which may come before this thread has begun."""
        try:
            self.serve_forever()
        except (OSError, ValueError):  # The socket is closed.
            if not self._has_ended:
                raise

    def service_actions(self) -> None:
        """Note that the thread of the server turns, and look at the event loop."""
        if self._has_ended:
            raise SystemExit  # Silently ends only this thread.
        self.silence.end()
        self.loop.look(time.monotonic())

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: the connection is closed, and a client without its page asks again."""

    def end(self) -> None:
        """Free the port, and end the thread; wait for nothing, since that thread may hang."""
        self._has_ended = True
        with suppress(OSError):  # Wakes the thread, which would otherwise hold the port longer.
            self.socket.shutdown(socket.SHUT_RDWR)
        self.server_close()
        with self._changing:
            clients, self._clients = self._clients, {}
        for client in clients:  # Some of their threads may never have started.
            client.close()

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]  # As above.
        """End the connection of a client."""
        with self._changing:
            self._clients.pop(request, None)
        super().shutdown_request(request)


class _Request(WSGIRequestHandler):
    timeout = 5.0
    """How many seconds a client may be silent."""

    def get_environ(self) -> dict[str, str]:
        """Return the variables of a request; `HTTPS` is one of them if it came through TLS."""
        is_encrypted = hasattr(self.connection, "getpeercert")
        return super().get_environ() | ({"HTTPS": "on"} if is_encrypted else {})

    def handle(self) -> None:
        """Respond; a client that is silent or gone gets no response."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a scrape is no event."""
