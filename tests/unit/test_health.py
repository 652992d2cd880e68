"""The HTTP pages of a service."""

import gzip
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from email.message import Message
from http.client import HTTPConnection

import pytest

from nodepool.host.exposition import Wanted, compress_pieces
from nodepool.host.health import HealthServer, Page
from nodepool.host.page_server import CLIENTS_MAX
from nodepool.host.settings import Settings, SettingsError
from testbed.pages import fetch

PATIENCE_S = 30.0
"""How long anything may take on a machine that has much else to do."""


@contextmanager
def serving(
    obstacle: Callable[[], str | None] = lambda: None, metrics: Page = lambda _: []
) -> Iterator[int]:
    """A server on a free port."""
    server = HealthServer(Settings(metrics_port=0), metrics, obstacle)
    try:
        yield server.port
    finally:
        server.close()


def page(port: int, path: str) -> tuple[int, str]:
    return fetch(f"http://127.0.0.1:{port}{path}", PATIENCE_S)


def test_readiness_says_what_is_wrong_and_liveness_does_not() -> None:
    # given a service that has not caught up
    obstacle: str | None = "reading the log:\n7 messages behind"
    with serving(lambda: obstacle) as port:
        # when its health is requested
        # then it is alive, and not ready, and one line says why
        assert page(port, "/livez") == (200, "ok\n")
        assert page(port, "/readyz") == (503, "not ready: reading the log: 7 messages behind\n")

        # and once it has caught up it is ready
        obstacle = None
        assert page(port, "/readyz") == (200, "ok\n")


def request(
    port: int, path: str, method: str = "GET", **headers: str
) -> tuple[int, Message, bytes]:
    """The status, the headers and the content of a response."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    fields = {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request(method, path, headers=fields)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, response.headers, content


PLAIN, OM = "text/plain; version=0.0.4; charset=utf-8", "application/openmetrics-text"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain", PLAIN),
        ("application/openmetrics-text", OM),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", OM),
        # That of Prometheus 2.42, and that of Prometheus 3.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
            "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            OM,
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
            "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            OM,
        ),
        ("text/plain;q=0.9,application/openmetrics-text;q=0.1", PLAIN),
        ("application/openmetrics-text;q=0", PLAIN),
        ("application/openmetrics-text;version=99", PLAIN),
        ("application/openmetrics-text;version=abc;q=x", PLAIN),
        (';;;,,q=,=;\t"', PLAIN),
        ("a/b," * 15_000 + "application/openmetrics-text", OM),
    ],
)
def test_a_page_of_metrics_has_the_format_that_is_asked_for(accept: str, kind: str) -> None:
    with serving(metrics=lambda wants: [wants.content_type.encode()]) as port:
        status, headers, content = request(port, "/metrics", Accept=accept)

    assert (status, headers["Vary"]) == (200, "Accept, Accept-Encoding")
    assert headers["Content-Type"].startswith(kind)
    assert headers["Content-Type"] == content.decode()


def test_a_header_that_is_too_long_is_refused() -> None:
    with serving() as port:
        assert request(port, "/metrics", Accept="x" * 70_000)[0] == 431
        assert page(port, "/livez") == (200, "ok\n")


@pytest.mark.parametrize("encoding", ["gzip", "deflate, GZIP;q=0.5"])
def test_a_page_is_compressed_where_that_is_asked_for(encoding: str) -> None:
    def metrics(wants: Wanted) -> list[bytes]:
        return compress_pieces([b"one\n", b"two\n"]) if wants.gzip else [b"plain"]

    with serving(metrics=metrics) as port:
        _, headers, content = request(port, "/metrics", Accept_Encoding=encoding)
        plain = request(port, "/metrics", Accept_Encoding="gzip;q=0")

    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(content) == b"one\ntwo\n"
    assert (plain[1].get("Content-Encoding"), plain[2]) == (None, b"plain")


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/nowhere"])
def test_a_request_for_the_head_of_a_page_gets_its_headers(path: str) -> None:
    with serving(metrics=lambda _: [b"one", b"two"]) as port:
        status, headers, content = request(port, path)
        head = request(port, path, "HEAD")

    assert (head[0], head[2]) == (status, b"")
    assert head[1]["Content-Length"] == headers["Content-Length"] == str(len(content))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", ["/metrics", "/livez"])
def test_pages_can_only_be_read(method: str, path: str) -> None:
    with serving() as port:
        status, headers, content = request(port, path, method)

    assert (status, headers["Allow"], content) == (405, "GET, HEAD", b"use GET\n")


def test_where_too_many_pages_are_being_made_a_scraper_is_sent_away() -> None:
    with serving(metrics=lambda _: None) as port:
        assert page(port, "/metrics") == (503, "too many scrapers; try later\n")


def test_many_clients_that_ask_for_nothing_keep_no_probe_from_its_page() -> None:
    # given as many silent clients as there may be, and one more
    with ExitStack() as stack:
        port = stack.enter_context(serving())
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
            for _ in range(CLIENTS_MAX + 1)
        ]

        # when a probe comes
        # then it gets its page
        assert page(port, "/livez") == (200, "ok\n")

        # and the clients that were silent for longest are gone, and no other
        assert [client.recv(1) for client in silent[:2]] == [b"", b""]
        silent[2].sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert silent[2].recv(12) == b"HTTP/1.0 200"


def test_another_page_is_not_found_and_names_those_there_are() -> None:
    # given a server
    with serving() as port:
        # when a page is requested that there is not
        # then the response names those there are
        assert page(port, "/") == (404, "see /metrics, /livez, /readyz\n")


def test_a_client_that_asks_for_nothing_keeps_no_other_waiting(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a client that has connected, and sends no request
    monkeypatch.setattr("nodepool.host.page_server.PageRequest.timeout", 0.1)
    with (
        serving() as port,
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as silent,
    ):
        # when another one asks
        # then it gets its page
        assert page(port, "/livez") == (200, "ok\n")

        # and the first is dismissed after a while, without a word
        assert silent.recv(1) == b""
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_is_a_settings_error_that_names_it() -> None:
    # given a port on which another program listens
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        # when the pages are to be served there
        with pytest.raises(SettingsError) as error:
            HealthServer(Settings(metrics_port=port), lambda _: [], lambda: None)

    # then the message is one line that names the address
    assert str(error.value) == (f"cannot serve metrics on 127.0.0.1:{port}: Address already in use")


def test_a_closed_server_leaves_its_port_free() -> None:
    # given a server that was closed
    with serving() as port:
        pass

    # when another program wants its port
    # then it can have it
    with socket.create_server(("127.0.0.1", port)):
        pass
