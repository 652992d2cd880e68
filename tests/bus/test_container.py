"""The bus in a container, and the containers of the compose file, where there is an engine."""

import asyncio
import gc
import re
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import pytest
import yaml

from bus.harness import BINARY, connected, outcome, send, serving, until
from nodepool.contract.commands import SetQuota
from nodepool.local.server import NatsServer
from nodepool.nats import api
from nodepool.nats.streams import STREAM
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

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


def _need_image(name: str) -> None:
    """Pulls an image unless it is there; skips the test where it cannot be had."""
    import docker
    from docker.errors import APIError, ImageNotFound

    client = docker.from_env()
    try:
        client.images.get(name)
    except ImageNotFound:
        try:
            client.images.pull(name)
        except APIError as error:
            pytest.skip(f"image {name} cannot be pulled: {error.explanation}")
    finally:
        client.close()


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


# The containers of the compose file.


class Healthcheck(TypedDict):
    """The health check of a container in the compose file."""

    test: list[str]


class Container(TypedDict):
    """A container of the compose file, as far as the tests read it."""

    command: list[str]
    read_only: bool
    cap_drop: list[str]
    security_opt: list[str]
    mem_limit: str
    memswap_limit: str
    cpus: float
    pids_limit: int
    environment: dict[str, str]
    healthcheck: Healthcheck


Images = Mapping[str, str]
"""The image of each stage of the Dockerfile; the stage of the services has no name."""


@pytest.fixture
def images(engine: None) -> Iterator[Images]:
    """The images of the compose file, built."""
    import docker

    for base in re.findall(r"^FROM (\S+:\S+)", (ROOT / BUILT_FROM).read_text(), re.MULTILINE):
        _need_image(base)
    tags = {"bus": "nodepool-test-bus:latest", "": "nodepool-test:latest"}
    client = docker.from_env()
    try:
        for stage, tag in tags.items():
            client.images.build(
                path=str(ROOT), dockerfile=BUILT_FROM, target=stage, tag=tag, rm=True
            )
        yield tags
    finally:
        for tag in tags.values():
            # By its name: the same image may have been built for the compose file as well.
            with suppress(docker.errors.ImageNotFound):
                client.images.remove(tag)
        client.close()


@contextmanager
def _running(
    name: str, image: str, network: "Network", volumes: Mapping[str, str]
) -> "Iterator[DockerContainer]":
    """A container of the compose file, with the rights and bounds that it has there.

    volumes: where each folder of this machine, or volume, is mounted.
    """
    from testcontainers.core.container import DockerContainer

    service: Container = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][name]
    check = {"test": service["healthcheck"]["test"], "interval": NANO, "timeout": 5 * NANO}
    container = (
        DockerContainer(image, command=None, env=dict(service["environment"]))
        .with_command(service["command"])
        .with_network(network)
        .with_network_aliases(name)
        .with_exposed_ports(PORT)
        .with_kwargs(
            read_only=service["read_only"],
            cap_drop=service["cap_drop"],
            security_opt=service["security_opt"],
            mem_limit=service["mem_limit"],
            memswap_limit=service["memswap_limit"],
            nano_cpus=int(service["cpus"] * NANO),
            pids_limit=service["pids_limit"],
            healthcheck=check,
        )
    )
    for outside, inside in volumes.items():
        container.with_volume_mapping(outside, inside, "ro" if outside.startswith("/") else "rw")
    with container:
        yield container


async def _healthy(container: "DockerContainer") -> None:
    """Returns once the health check of a container passes."""
    wrapped = container.get_wrapped_container()

    def passes() -> bool:
        wrapped.reload()
        return bool(wrapped.attrs["State"]["Health"]["Status"] == "healthy")

    await until(passes)


def _output(container: "DockerContainer", command: str) -> str:
    """What a shell in a container prints, errors included."""
    printed = container.get_wrapped_container().exec_run(["sh", "-c", command]).output
    return printed.decode().strip()  # type: ignore[no-any-return]  # The library has no types.


@contextmanager
def _volume() -> Iterator[str]:
    import docker

    client = docker.from_env()
    volume = client.volumes.create(f"nodepool-test-{uuid.uuid4()}")
    try:
        yield volume.name
    finally:
        volume.remove()
        client.close()


@pytest.mark.timeout(600)
def test_a_service_processes_a_command_with_no_more_rights_than_the_compose_file_gives(
    images: Images,
) -> None:
    from testcontainers.core.network import Network

    async def story(bus: "DockerContainer", quota: "DockerContainer") -> None:
        # given the server and a service in containers
        await _healthy(bus)
        await _healthy(quota)

        # when a command is sent
        async with connected(_url(bus)) as connection:
            await send(connection, SetQuota(org="a", zone=ZONE, instance_type=H100, limit=1), "c1")

            # then there is an outcome
            assert (await outcome(connection, "c1"))["type"] == "CommandAccepted"

    with (
        _volume() as data,
        Network() as network,
        _running(
            "nats",
            images["bus"],
            network,
            {str(ROOT / "deploy" / "nats.conf"): "/etc/nats/nats.conf", data: "/data"},
        ) as bus,
        _running("quota", images[""], network, {}) as quota,
    ):
        asyncio.run(story(bus, quota))

        # and neither is root, or can write where it has no data
        for container in (bus, quota):
            assert _output(container, "id -u") == "10001"
            assert "Read-only file system" in _output(container, "touch /tmp/x")

        # and what no service uses is not there
        assert _output(quota, "command -v pip nats-server") == ""
        assert "No module named pip" in _output(quota, "python -m pip")
