"""The HTTP pages of a service: /metrics, /livez and /readyz."""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from nodepool.host.settings import Settings, SettingsError

Environ = dict[str, object]
StartResponse = Callable[..., object]


class HealthServer:
    """Serves the pages in threads of its own, from the moment it is made until `close`.

    `obstacle` is called in one of them: why the service is not ready; None where it is. Raises
    SettingsError where it cannot listen, as on a port that is taken.
    """

    def __init__(
        self, settings: Settings, registry: CollectorRegistry, obstacle: Callable[[], str | None]
    ) -> None:
        self._metrics = make_wsgi_app(registry)
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
        match environ.get("PATH_INFO"):
            case "/metrics":
                page: Iterable[bytes] = self._metrics(environ, start)
                return page
            case "/livez":
                return _text(start, "200 OK", "ok")
            case "/readyz":
                obstacle = self._obstacle()
                if obstacle is None:
                    return _text(start, "200 OK", "ok")
                line = " ".join(obstacle.split())
                return _text(start, "503 Service Unavailable", f"not ready: {line}")
        return _text(start, "404 Not Found", "see /metrics, /livez, /readyz")

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()


def _text(start: StartResponse, status: str, text: str) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    """Responds to each client in a thread of its own: a slow one keeps no other waiting."""

    daemon_threads = True


class _Request(WSGIRequestHandler):
    timeout = 5.0
    """How many seconds a client may be silent."""

    def handle(self) -> None:
        """Responds; a client that is silent or gone has no response."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a scrape is no event."""
