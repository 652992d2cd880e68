"""The image of the services: what it holds, what it says of itself, and how its programs end."""

import json
import re
import subprocess
import tarfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from containers.building import built
from containers.engine import ROOT
from containers.stack import IMAGE, docker, until
from nodepool.contract.services import SERVICES

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("built_images")]
SIZE_MAX = 100_000_000
"""In bytes."""
STOP_S = 30.0
"""How long the end of a program may take at most on a machine that has much else to do."""
KILLED_S = 60
"""When the engine kills it, in these tests."""
SBOM = "/app/sbom.cdx.json"
LOADS = """
import nacl.signing, pydantic_core, socket, ssl, uvloop, yaml
trusted = ssl.create_default_context().cert_store_stats()["x509_ca"]
print(trusted > 50, socket.getaddrinfo("localhost", 1)[0][4][0], yaml.__with_libyaml__)
"""
CONFINED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--init")
DISTRIBUTIONS = """
import json
from importlib.metadata import distributions
found = [[each.name.lower().replace("_", "-"), each.version] for each in distributions()]
print(json.dumps(sorted(found)))
"""


def run(*args: str) -> str:
    """What a program prints in a container without rights."""
    return docker("run", "--rm", "--network", "none", *CONFINED, IMAGE, *args)


@contextmanager
def started(*args: str) -> Iterator[str]:
    """A container that runs in the background; its id."""
    id = docker("run", "--detach", *CONFINED, *args)
    try:
        yield id
    finally:
        docker("rm", "--force", id)


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Every file of the image, by its path without the leading slash."""
    id = docker("create", IMAGE)
    try:
        with (
            subprocess.Popen(["docker", "export", id], stdout=subprocess.PIPE) as export,
            tarfile.open(fileobj=export.stdout, mode="r|") as archive,
        ):
            return [member.name for member in archive if not member.isdir()]
    finally:
        docker("rm", id)


# What it holds.


def test_there_is_no_shell_no_package_manager_and_no_server(files: list[str]) -> None:
    programs = {path for path in files if re.search(r"(^|/)s?bin/", path)}

    assert {path.rpartition("/")[2] for path in programs} >= {"python", "nodepool"}
    shells = r"(ba|da|a)?sh|busybox|pip[0-9.]*|apt(-get)?|dpkg|perl|nats-server|ldconfig"
    assert [path for path in programs if re.fullmatch(rf".*/({shells})", path)] == []
    packages = r"site-packages/(pip|setuptools|wheel|pytest|mypy|hatchling)(/|$)"
    assert [path for path in files if re.search(packages, path)] == []
    assert [path for path in files if re.search(r"/(test|tests|idlelib|ensurepip)/", path)] == []


def test_the_image_is_small() -> None:
    assert int(docker("image", "inspect", "--format", "{{.Size}}", IMAGE)) <= SIZE_MAX


def test_every_module_is_compiled_since_nothing_can_be_later(files: list[str]) -> None:
    ours = [path for path in files if re.fullmatch(r"app/(nodepool|quota)/.*\.py", path)]
    compiled = {path for path in files if path.endswith(".pyc")}

    def place(path: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-"

    assert ours != []
    assert [p for p in ours if not any(c.startswith(place(p)) for c in compiled)] == []


def test_the_list_of_contents_has_exactly_what_is_installed(files: list[str]) -> None:
    # given the list in the image
    document = json.loads(run("python", "-c", f"print(open({SBOM!r}).read())"))
    ours = document["metadata"]["component"]
    listed = [ours, *document["components"]]

    # then it has each Python package that is installed, and no other
    python = [each for each in listed if each["purl"].startswith("pkg:pypi/")]
    installed = json.loads(run("python", "-c", DISTRIBUTIONS))
    assert sorted([each["name"], each["version"]] for each in python) == installed
    assert [each["purl"] for each in python] == [
        f"pkg:pypi/{each['name']}@{each['version']}" for each in python
    ]

    # and the hash of each is one of the lock
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    hashes = [item["content"] for each in python if each is not ours for item in each["hashes"]]
    assert len(hashes) == len(python) - 1
    assert [content for content in hashes if f"--hash=sha256:{content}" not in lock] == []

    # and each of Debian's packages of which there are files
    debian = {each["name"] for each in listed if each["purl"].startswith("pkg:deb/debian/")}
    described = {path.rpartition("/")[2] for path in files if "dpkg/status.d/" in path}
    assert debian == described >= {"libc6", "libssl3"}
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")


def test_it_can_speak_tls_and_resolve_names_without_a_shell() -> None:
    trusts, address, reads_yaml_fast = run("python", "-c", LOADS).split()

    assert (trusts, reads_yaml_fast) == ("True", "True")
    assert address in ("127.0.0.1", "::1")


# What it says of itself.


def test_labels_say_what_it_is(checkout: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "org.opencontainers.image."
    said = {"REVISION": "abc", "CREATED": "2026-01-02T03:04:05Z", "SOURCE": "https://x.example/y"}
    with built(checkout, **said) as name:
        labels = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", name))

    # Compose adds its own.
    ours = {key: value for key, value in labels.items() if key.startswith(prefix)}
    assert {key.removeprefix(prefix): value for key, value in ours.items()} == {
        "title": project["name"],
        "description": project["description"],
        "licenses": project["license"],
        "version": project["version"],
        "revision": "abc",
        "created": "2026-01-02T03:04:05Z",
        "source": "https://x.example/y",
    }


# How its programs run and end.


def test_without_a_command_it_prints_its_help() -> None:
    assert docker("run", "--rm", IMAGE).startswith("Usage: nodepool")


def test_a_setting_that_is_wrong_ends_the_service_with_a_line_that_names_it() -> None:
    done = subprocess.run(
        ["docker", "run", "--rm", "-e", "NODEPOOL_REPLICAS=many", IMAGE, "python", "-m", "quota"],
        capture_output=True,
        text=True,
        check=False,
    )

    text = "quota: NODEPOOL_REPLICAS is 'many'; it must be from 1 to 5\n"
    assert (done.returncode, done.stderr) == (1, text)


@pytest.mark.parametrize("at_work", [False, True])
def test_a_service_ends_soon_after_sigterm_whatever_it_is_at(at_work: bool) -> None:
    # given a service that has just begun, or that tries to reach its server
    with started("-e", "NODEPOOL_URL=nats://127.0.0.1:1", IMAGE, "python", "-m", SERVICES[0]) as id:
        if at_work:
            until(lambda: docker("logs", id), "a line in its log")
        began = time.monotonic()

        # when it is asked to end
        docker("stop", "--time", str(KILLED_S), id)

        # then it does so by itself
        took_s = time.monotonic() - began
        state = json.loads(docker("inspect", "--format", "{{json .State}}", id))
        assert state["ExitCode"] in ((0,) if at_work else (0, 143))
        assert took_s < STOP_S


def test_a_service_that_cannot_reach_its_server_is_unhealthy_and_says_why() -> None:
    check = ("--health-interval", "1s", "--health-retries", "1", "--health-start-period", "1ms")
    program = (IMAGE, "python", "-m", "quota")
    with started(*check, "-e", "NODEPOOL_URL=nats://127.0.0.1:1", *program) as id:

        def health() -> str:
            return docker("inspect", "--format", "{{json .State.Health}}", id)

        until(lambda: '"Status":"unhealthy"' in health() and "not ready" in health(), "unhealthy")
