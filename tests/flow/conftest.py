"""Harnesses for tests; after each test, a replay of the log must lead to the same states.

Every test has three parts, with blank lines between them: given, when, then.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.local.binary import find_server
from nodepool.local.server import NatsServer
from redfish.program import zones_of_metal
from support.harness import Harness
from support.live import LiveHarness
from support.world_harness import WorldHarness
from testbed.ports import free_port


@pytest.fixture
def zone_of_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog in which a zone belongs to `metal`."""
    monkeypatch.setattr("nodepool.contract.catalog.ZONES", zones_of_metal())


@pytest.fixture
def world() -> Iterator[WorldHarness]:
    """A harness in memory, for tests in which time passes or services are paused."""
    harness = WorldHarness()
    yield harness
    assert harness.replay_differs() == []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for all tests; each starts with empty streams."""
    binary = find_server(os.environ.get("NODEPOOL_NATS_SERVER"))
    with NatsServer(tmp_path_factory.mktemp("nats"), free_port(), binary) as running:
        yield running


@pytest.fixture
def live(server: NatsServer, tmp_path: Path) -> Iterator[LiveHarness]:
    """A harness on a real server."""
    harness = LiveHarness(server, tmp_path / "services.log")
    try:
        yield harness
        assert harness.replay_differs() == []
    finally:
        harness.close()


@pytest.fixture(params=["world", "live"])
def harness(request: pytest.FixtureRequest) -> Harness:
    """Each of the two harnesses in turn."""
    harness: Harness = request.getfixturevalue(request.param)
    return harness
