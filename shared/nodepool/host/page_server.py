"""The HTTP server of a service's pages: a thread for each client, and bounds for slow clients."""

import _thread
import socket
import sys
import threading
import time
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from nodepool.host.protection import Protection, ServerCertificate
from nodepool.host.silence import Silence

if TYPE_CHECKING:
    import ssl

CLIENTS_MAX = 32
"""The most clients at a time; a further client ends the connection that has been open longest."""
STARVED_MAX = 5
"""How many times in a row clients find no memory, or are found waiting for their thread to begin,
until the server counts as starved: a thread that finds no memory at its first call never begins."""
TLS_HANDSHAKE = b"\x16"
"""The first byte that a client sends if it speaks TLS: https://www.rfc-editor.org/rfc/rfc8446#section-5.1."""


class PageServer(ThreadingMixIn, WSGIServer):
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
        self._waiting: set[socket.socket] = set()
        """The clients since the last response whose thread has not begun."""
        self._starved = 0
        """How many times since the last response there was no memory."""
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
            self._waiting.add(request)
        # `Thread.start` would never return if the thread dies before it has started, for example
        # because memory runs out: this server would never respond again.
        try:
            _thread.start_new_thread(self.process_request_thread, (request, client_address))
        except (RuntimeError, MemoryError):  # There is no memory for another thread's stack.
            self.process_request_thread(request, client_address)

    def is_starved(self) -> bool:
        """Return whether clients get no page for want of memory; the event loop asks each turn."""
        self._starved += bool(self._waiting)
        return self._starved >= STARVED_MAX

    def process_request_thread(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # As above.
        """Note that the thread of a client has begun, and respond."""
        self._waiting.discard(request)
        super().process_request_thread(request, client_address)

    def finish_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # As above.
        """Respond to a client, with TLS if the client begins with it."""
        context = self.certificate.context()
        request.settimeout(PageRequest.timeout)
        if context is None or request.recv(1, socket.MSG_PEEK) != TLS_HANDSHAKE:
            super().finish_request(request, client_address)
        else:
            encrypted = self._encrypt(context, request)
            try:
                encrypted.do_handshake()
                super().finish_request(encrypted, client_address)
            finally:
                self.shutdown_request(encrypted)
        self._waiting.clear()
        self._starved = 0

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
        except MemoryError:  # Without this thread, no client gets a page.
            self._starved = STARVED_MAX

    def service_actions(self) -> None:
        """Note that the thread of the server turns, and look at the event loop."""
        if self._has_ended:
            raise SystemExit  # Silently ends only this thread.
        self.silence.end()
        self.loop.look(time.monotonic())

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: the connection is closed, and a client without its page asks again."""
        self._starved += isinstance(sys.exception(), MemoryError)

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


class PageRequest(WSGIRequestHandler):
    """Reads a request, and says whether it came through TLS."""

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
