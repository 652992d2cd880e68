"""A server for each test, and a folder for what programs keep of a user."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.harness import BINARY
from nodepool.local.server import NatsServer
from testbed.ports import free_port

MEGABYTES = 24


@pytest.fixture(scope="session", autouse=True)
def _settings_of_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep links to keys out of the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


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
    """A folder on a disk of its own, with room for `MEGABYTES`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
