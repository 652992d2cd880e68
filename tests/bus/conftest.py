"""A server for each test, and a folder for what programs keep of a user."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.harness import BINARY, PATIENCE_S
from nodepool.local.server import NatsServer
from support.disks import small_disk
from testbed.ports import free_port

PATIENT = (
    "nodepool.client.accepted.CATCH_UP_S",
    "nodepool.client.doctor.examination.REPLY_S",
    "nodepool.client.doctor.gateway.REPLICA_S",
    "nodepool.client.doctor.reaching.PORT_S",
    "nodepool.client.doctor.server.PERMISSION_S",
)
"""The limits after which a program tells its user that a read model, port or reply is late."""


@pytest.fixture(scope="session", autouse=True)
def _settings_of_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep links to keys out of the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs wait for others as long as a busy machine may take, and print no less then.

    A story about what a program says when it has waited in vain sets its own limit.
    """
    for limit in PATIENT:
        monkeypatch.setattr(limit, PATIENCE_S)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A running server, with its data in a folder of this test."""
    with NatsServer(tmp_path / "nats", free_port(), BINARY) as running:
        yield running


@pytest.fixture(scope="session")
def _browser() -> Iterator[None]:
    """Close the browser that stories share, after the last of them."""
    from bus.browsers import SHARED

    yield
    SHARED.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small disk of its own."""
    with small_disk(tmp_path / "disk") as folder:
        yield folder
