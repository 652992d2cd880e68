"""The HTTP pages of a service."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Gauge

from nodepool.host.health import HealthServer
from nodepool.host.settings import Settings, SettingsError


@contextmanager
def serving(
    obstacle: Callable[[], str | None] = lambda: None, registry: CollectorRegistry | None = None
) -> Iterator[int]:
    """A server on a free port."""
    settings = Settings(metrics_port=0)
    server = HealthServer(settings, registry or CollectorRegistry(), obstacle)
    try:
        yield server.port
    finally:
        server.close()


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


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


def test_metrics_are_those_of_the_registry() -> None:
    # given a registry with a gauge
    registry = CollectorRegistry()
    Gauge("nodepool_leading", "1 while this replica leads.", registry=registry).set(1)

    # when it is scraped
    with serving(registry=registry) as port:
        status, text = page(port, "/metrics")

    # then the gauge is there
    assert status == 200
    assert "\nnodepool_leading 1.0\n" in text


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
    monkeypatch.setattr("nodepool.host.health._Request.timeout", 0.1)
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=5) as silent:
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
            HealthServer(Settings(metrics_port=port), CollectorRegistry(), lambda: None)

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
