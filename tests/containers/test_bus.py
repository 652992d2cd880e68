"""A bus in a container made for one test, where there is an engine."""

import gc
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bus.harness import BINARY, connected, outcome, send, serving
from nodepool.contract.commands import SetQuota
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

ROOT = Path(__file__).parents[2]
BUILT_FROM = "deploy/Dockerfile"
PORT = 4222
DOCKERFILE = f"""
FROM scratch
COPY nats-server /nats-server
COPY nats.conf /nats.conf
EXPOSE {PORT}
ENTRYPOINT ["/nats-server", "--config", "/nats.conf"]
"""
CONFIGURATION = f"""
listen: 0.0.0.0:{PORT}
jetstream {{ store_dir: /data, sync_interval: always }}
"""
NANO = 1_000_000_000


class InContainer(NatsServer):
    """A server that the test does not start, known by its address alone."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self._url


def _why_no_engine() -> str:
    """Why no container engine can be used; empty where one can."""
    import docker  # type: ignore[import-untyped]
    from docker.errors import DockerException  # type: ignore[import-untyped]

    try:
        engine = docker.from_env(timeout=10)
    except DockerException as error:
        return str(error)
    engine.close()
    return ""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container engine; without one the test is skipped, and the summary of the run names it."""
    from testcontainers.core.config import testcontainers_config

    with warnings.catch_warnings():
        # Without an engine, the docker client leaves an open socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        missing = _why_no_engine()
        gc.collect()
    if missing:
        pytest.skip(f"no container engine answers: {missing}")
    # Its helper removes what a killed run leaves, but is an image that would have to be pulled.
    monkeypatch.setattr(testcontainers_config, "_ryuk_disabled", True)


@pytest.fixture
def contained(engine: None, tmp_path: Path) -> Iterator[InContainer]:
    """A server in a container, whose image is built from its binary alone."""
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.image import DockerImage

    shutil.copy(BINARY, tmp_path / "nats-server")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "nats.conf").write_text(CONFIGURATION)
    with (
        DockerImage(path=tmp_path, tag="nodepool-test-scratch:latest", rm=True) as image,
        DockerContainer(str(image)).with_exposed_ports(PORT) as container,
    ):
        yield InContainer(_url(container))


def _url(container: "DockerContainer") -> str:
    return f"nats://{container.get_container_host_ip()}:{container.get_exposed_port(PORT)}"


async def test_a_service_on_a_bus_in_a_container_processes_a_command(
    contained: InContainer, tmp_path: Path
) -> None:
    # given a bus in a container, provisioned, and a service on it
    async with (
        connected(contained.url) as connection,
        serving(QUOTA, contained, tmp_path / "one.log"),
    ):
        # when a command is sent
        await send(connection, SetQuota(org="a", zone=ZONE, instance_type=H100, limit=1), "c1")

        # then there is an outcome, and it lies in the log
        assert (await outcome(connection, "c1"))["type"] == "CommandAccepted"
        assert await api.last_position(connection, STREAM) > 1
