"""A server for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.harness import BINARY
from nodepool.local.server import NatsServer
from testbed.ports import free_port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A running server, with its data in a folder of this test."""
    with NatsServer(tmp_path / "nats", free_port(), BINARY) as running:
        yield running
