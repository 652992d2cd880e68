"""The stages that stories are told on; each story ends with the whole log read once more."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.local.binary import find_server
from nodepool.local.ports import free_port
from nodepool.local.server import NatsServer
from support.live import LiveStage
from support.stage import Stage, WorldStage


@pytest.fixture
def world() -> Iterator[WorldStage]:
    """A stage in memory, for stories that need time to pass or somebody to sleep."""
    told = WorldStage()
    yield told
    assert told.replay_differs() == []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for all stories; each begins with nothing on it."""
    binary = find_server(os.environ.get("NODEPOOL_NATS_SERVER"))
    with NatsServer(tmp_path_factory.mktemp("nats"), free_port(), binary) as running:
        yield running


@pytest.fixture
def live(server: NatsServer, tmp_path: Path) -> Iterator[LiveStage]:
    """A stage on a real bus."""
    told = LiveStage(server, tmp_path / "services.log")
    try:
        yield told
        assert told.replay_differs() == []
    finally:
        told.close()


@pytest.fixture(params=["world", "live"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """Each of the stages in turn, for stories that can be told anywhere."""
    told: Stage = request.getfixturevalue(request.param)
    return told
