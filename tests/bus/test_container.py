"""The bus in a container, where there is a container engine."""

import asyncio
import gc
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.harness import BINARY, connected, outcome, send, serving
from nodepool.contract.commands import SetQuota
from nodepool.local.server import NatsServer
from nodepool.nats import api
from nodepool.nats.streams import STREAM
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE

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


class InContainer(NatsServer):
    """A server that the test does not start, known by its address alone."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self._url


def _why_missing() -> str:
    """Why no container engine can be used; empty where one can."""
    import docker  # type: ignore[import-untyped]
    from docker.errors import DockerException  # type: ignore[import-untyped]

    try:
        engine = docker.from_env(timeout=10)
    except DockerException as error:
        return str(error)
    engine.close()
    return ""


def _need_an_engine() -> None:
    """Skips the test where there is no container engine; the summary of the run names it."""
    with warnings.catch_warnings():
        # Without an engine, the docker client leaves an open socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        missing = _why_missing()
        gc.collect()
    if missing:
        pytest.skip(f"no container engine answers: {missing}")


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[InContainer]:
    """A server in a container, whose image is built from its binary alone."""
    _need_an_engine()
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.image import DockerImage

    shutil.copy(BINARY, tmp_path / "nats-server")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "nats.conf").write_text(CONFIGURATION)
    with (
        DockerImage(path=tmp_path, tag="nodepool-test-bus:latest") as image,
        DockerContainer(str(image)).with_exposed_ports(PORT) as container,
    ):
        host, port = container.get_container_host_ip(), container.get_exposed_port(PORT)
        yield InContainer(f"nats://{host}:{port}")


@pytest.mark.timeout(180)
def test_a_service_on_a_bus_in_a_container_processes_a_command(
    contained: InContainer, tmp_path: Path
) -> None:
    async def story() -> None:
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

    asyncio.run(story())
