"""What is written for operators agrees with the code: compose file, server, README, examples."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.client.manifests import read_manifests
from nodepool.host import settings
from nodepool.host.settings import Settings
from nodepool.local import up

HOUSE = Path(__file__).parents[2]
EXAMPLES = HOUSE / "deploy" / "examples"
BUS = "nats"


def read(*path: str) -> str:
    return HOUSE.joinpath(*path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    """The compose file, its anchors resolved."""
    found: Mapping[str, Any] = yaml.safe_load(read("docker-compose.yml"))
    return found


@pytest.fixture(scope="module")
def packages() -> set[str]:
    """Every service that can run as a process."""
    return {path.parent.name for path in HOUSE.glob("services/*/__main__.py")}


def test_compose_runs_every_service_and_a_bus(
    compose: Mapping[str, Any], packages: set[str]
) -> None:
    assert set(compose["services"]) == {*packages, BUS}


def test_one_machine_runs_every_service(packages: set[str]) -> None:
    assert sorted(up.SERVICES) == sorted(packages)


def test_each_container_runs_the_service_it_is_named_after(
    compose: Mapping[str, Any], packages: set[str]
) -> None:
    commands = {name: compose["services"][name]["command"] for name in packages}

    assert commands == {name: ["python", "-m", name] for name in packages}


def test_the_settings_of_each_container_are_ones_that_a_service_takes(
    compose: Mapping[str, Any], packages: set[str]
) -> None:
    found = {settings.read(compose["services"][name]["environment"]) for name in packages}

    assert found == {Settings(f"nats://{BUS}:4222", "0.0.0.0", 9464)}


def test_a_container_shows_its_metrics_and_health_on_one_port(
    compose: Mapping[str, Any], packages: set[str]
) -> None:
    for name in packages:
        service = compose["services"][name]
        port = service["environment"]["NODEPOOL_METRICS_PORT"]

        assert service["expose"] == [port]
        assert f":{port}/readyz" in service["healthcheck"]["test"][-1]
        assert f"EXPOSE {port}" in read("deploy", "Dockerfile")


def test_a_container_can_have_replicas(compose: Mapping[str, Any], packages: set[str]) -> None:
    found = {key for name in packages for key in compose["services"][name]}

    assert found.isdisjoint({"container_name", "ports"})


def test_the_server_of_the_compose_file_syncs_each_message(compose: Mapping[str, Any]) -> None:
    mounted = [volume.split(":")[:2] for volume in compose["services"][BUS]["volumes"]]
    (ours,) = [(mine, theirs) for mine, theirs in mounted if mine.startswith(".")]
    conf = read(ours[0])

    assert compose["services"][BUS]["command"] == ["--config", ours[1]]
    assert re.search(r"^\s*sync_interval: always$", conf, re.MULTILINE)
    assert f'store_dir: "{next(theirs for mine, theirs in mounted if mine != ours[0])}"' in conf


def test_the_image_has_all_that_the_build_asks_for() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", read("deploy", "Dockerfile"), re.MULTILINE)
        for word in line.split()[:-1]
    }
    ignored = read(".dockerignore").splitlines()

    wanted = {"pyproject.toml", "shared", "services", project["readme"], *project["license-files"]}
    assert wanted <= copied
    assert {f"!{name}" for name in copied} <= set(ignored)


def test_every_make_target_of_the_readme_exists() -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", read("README.md"), re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))

    assert {"run", "test"} <= named <= targets


def test_the_readme_names_every_setting_and_no_other() -> None:
    known = {name.upper() for name in Settings.__slots__} | settings.OTHERS

    named = set(re.findall(rf"\b{settings.PREFIX}([A-Z_]+)", read("shared", "README.md")))

    assert named == known


def test_the_examples_are_manifests() -> None:
    names = [manifest.command.metadata.name for manifest in read_manifests([str(EXAMPLES)])]

    assert names == ["batch", "training", "services"]
