"""Whether a container's health check says what its service says of itself."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodepool.host.check import obstacle
from nodepool.host.health import HealthServer
from nodepool.host.settings import Settings
from testbed.ports import free_port

HOST = "127.0.0.1"


@contextmanager
def service(reason: str | None, host: str = HOST) -> Iterator[dict[str, str]]:
    """The environment of a service that is not ready for this reason, or is where there is none."""
    server = HealthServer(Settings(HOST, host, 0), lambda _: [], lambda: reason)
    try:
        yield {"NODEPOOL_METRICS_HOST": host, "NODEPOOL_METRICS_PORT": str(server.port)}
    finally:
        server.close()


@contextmanager
def answering(response: bytes) -> Iterator[dict[str, str]]:
    """The environment of something that is no service, and answers one request with these bytes."""
    with socket.create_server((HOST, 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(response)

        thread = threading.Thread(target=answer)
        thread.start()
        yield {"NODEPOOL_METRICS_PORT": str(server.getsockname()[1])}
        thread.join()


def test_a_service_that_is_ready_has_no_obstacle() -> None:
    with service(None) as environment:
        assert obstacle(environment) is None


def test_a_service_on_all_addresses_is_asked_on_its_own() -> None:
    with service(None, "0.0.0.0") as environment:
        assert obstacle(environment) is None


def test_what_keeps_a_service_from_being_ready_is_the_obstacle() -> None:
    with service("40 messages behind") as environment:
        assert obstacle(environment) == "not ready: 40 messages behind"


def test_nothing_that_listens_is_an_obstacle_with_its_address() -> None:
    port = free_port()

    text = obstacle({"NODEPOOL_METRICS_PORT": str(port)})

    assert text == f"nothing answers on 127.0.0.1:{port}: Connection refused"


@pytest.mark.parametrize("port", ["", "-1", "0", "65536", "x", "٣"])
def test_a_port_that_is_none_is_an_obstacle_that_names_the_setting(port: str) -> None:
    text = obstacle({"NODEPOOL_METRICS_PORT": port})

    expected = f"NODEPOOL_METRICS_PORT is {port!r}: set the port on which the service listens"
    assert text == expected


@pytest.mark.parametrize("response", [b"", b"\x00\xff", b"HTTP/1.1 500 Oops\r\n\r\n", b"200 OK"])
def test_what_does_not_answer_as_a_service_does_is_an_obstacle(response: bytes) -> None:
    with answering(response) as environment:
        text = obstacle(environment)

        port = environment["NODEPOOL_METRICS_PORT"]
        assert text == f"127.0.0.1:{port} does not answer as a service does"


def test_as_a_program_it_ends_with_1_and_the_obstacle() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodepool.host.check"],
        env={"PYTHONPATH": ":".join(sys.path), "NODEPOOL_METRICS_PORT": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("NODEPOOL_METRICS_PORT is '-1'")
