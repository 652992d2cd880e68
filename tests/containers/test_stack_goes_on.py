"""The compose file at work, while parts of it end, and after a new version and a new start."""

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import pytest

from containers.engine import environment
from containers.images import names
from containers.stack import (
    BRING_UP,
    IMAGE,
    PROGRAMS,
    Stack,
    docker,
    kill,
    killed_and_started_again,
    only_root,
    service_of,
    until,
)
from nodepool.cli.errors import UNREACHABLE
from nodepool.contract.services import SHARED

pytestmark = pytest.mark.timeout(900)
SMALL = ("nodepool", "services")
TRAINING = ("nodepool", "training")
WHOLE = re.compile(r"is whole: ([1-9]\d*) messages, positions 1 to \1, ")
VERSION = "9.9.9"
VERSION_LABEL = "org.opencontainers.image.version"


# What is beside it.


def test_with_the_settings_for_the_past_the_log_is_archived_and_users_see_the_past(
    stack: Stack,
) -> None:
    past, archive = ("--env-file", "deploy/past.env"), ("--profile", "archive")
    try:
        # given a stack with an archiver, whose gateway shows the past, and a user
        stack.run(*past, "up", "--build", "--detach", "archiver", "gateway")
        stack.wait_until_at_work()
        auth = ("run", "--rm", "auth", "nodepool", "auth")
        stack.run(*auth, "add-organisation", "demo", check=False)
        stack.run(*auth, "add-user", "demo", "paul", "--role", "viewer")
        stack.run("run", "--rm", "provision")

        # when the archive is read back
        verify = (*archive, "exec", "-T", "archiver", "nodepool", "log", "verify")
        said: list[str] = []

        def is_read_back() -> bool:
            done = stack.run(*verify, "--archive", "/archive", check=False)
            said.append(done.stdout + done.stderr)
            return WHOLE.search(said[-1]) is not None

        # then it soon is whole, from the first message on
        until(is_read_back, lambda: said[-1])

        # and shows the user the NodePools as of a moment
        key, names = stack.key("/auth/keys/demo/paul.nk"), ("get", "nodepools", "-o", "name")
        then = (*names, "--at", datetime.now(UTC).isoformat(timespec="seconds"))
        until(lambda: stack.works(*then, key=key), "an answer about the past")
        assert stack.cli(*then, key=key) == stack.cli(*names)
    finally:
        stack.run(*archive, "rm", "--stop", "--force", "archiver")
        stack.up("gateway")


# What happens when parts of it end.


@only_root
def test_every_replica_may_be_killed_and_work_goes_on(stack: Stack) -> None:
    for number in (0, 1):
        # given one replica of each service, the leader or the other
        pieces = [stack.containers(name)[number] for name in SHARED]

        # when all of them are killed, and a NodePool is scaled meanwhile
        for piece in pieces:
            kill(piece)
        scale = ("--request-timeout", "60s", "scale", *TRAINING)
        stack.cli(*scale, "--target", str(10 + number))

        # then the NodePool gets its Nodes, and the engine starts them again
        stack.wait_until_at_work()
        again = {name: stack.containers(name)[number]["RestartCount"] for name in SHARED}
        assert {name for name, count in again.items() if not count} == set()
    stack.cli("scale", *TRAINING, "--target", "8")
    stack.wait_until_at_work()


@only_root
def test_the_server_may_be_killed_and_work_goes_on(stack: Stack) -> None:
    killed_and_started_again(stack, "nats")


def test_a_replica_ends_well_within_its_grace_period(stack: Stack) -> None:
    for name in PROGRAMS[:2]:
        container = stack.containers(name)[1]
        grace = int(container["Config"].get("StopTimeout") or 15)

        docker("stop", "--time", str(grace), container["Id"])

        state = stack.containers(name)[1]["State"]
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    stack.run("start")
    stack.wait_until_at_work()


def test_replicas_that_lose_their_network_work_again_once_they_have_it(stack: Stack) -> None:
    # given a replica of each service without a network, so without names and the server
    (network,) = stack.left("network")
    cut_off = {name: stack.containers(name)[0]["Id"] for name in SHARED}
    for id in cut_off.values():
        docker("network", "disconnect", "--force", network, id)

    # when a NodePool is scaled
    stack.cli("--request-timeout", "60s", "scale", "nodepool", "training", "--target", "9")
    stack.cli("wait", "nodepool", "training", "--for", "condition=AtTarget", "--timeout", "60s")

    # then the others do the work, and these are at work again when their network is back
    for name, id in cut_off.items():
        docker("network", "connect", "--alias", name, network, id)
    stack.wait_until_at_work()
    stack.cli("scale", "nodepool", "training", "--target", "8")
    stack.wait_until_at_work()


# What a new version, and a new start, leave as it was.


def test_a_new_version_and_a_new_start_replace_every_container_and_lose_nothing(
    stack: Stack, newer_server: str
) -> None:
    # given a new version of the server and of the services
    uids = {name: pool["metadata"]["uid"] for name, pool in stack.pools().items()}
    stack.variables |= {"VERSION": VERSION, "NATS_IMAGE": newer_server}

    # when it is brought up as the page says, and a NodePool is scaled all the while
    attempts = scaled_while(stack, *BRING_UP.split()[2:], "--detach")
    assert 0 in [code for _, code in attempts[:-1]], attempts
    stack.cli("wait", "nodepool", "--all", "--for", "condition=AtTarget", "--timeout", "120s")

    # then every container has it, and the last target with an outcome is stored, or a later one
    assert versions(stack) == {name: {VERSION} for name in (*PROGRAMS, "nats")}
    done = max(number for number, (_, code) in enumerate(attempts) if code == 0)
    pools = stack.pools()
    stored = pools["services"]["spec"]["targetNodes"]
    assert stored in [target for target, _ in attempts[done:]], attempts
    assert {name: pool["metadata"]["uid"] for name, pool in pools.items()} == uids

    # and when it is taken down and brought up again, with its volumes, all is as it was
    stack.cli("scale", *SMALL, "--target", "3")
    stack.cli("wait", "nodepool", "--all", "--for", "condition=AtTarget", "--timeout", "120s")
    before = identities(stack)
    stack.take_down()
    stack.up("--no-build", "--wait")
    assert identities(stack) == before


@pytest.fixture
def newer_server(stack: Stack) -> Iterator[str]:
    """The name of an image of the server that differs from the one that runs."""
    newer = f"{IMAGE}-newer-server"
    dockerfile = f"FROM {names()['NATS_IMAGE']}\nLABEL {VERSION_LABEL}={VERSION}\n"
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", newer, "-"],
        input=dockerfile,
        text=True,
        check=True,
        capture_output=True,
        env={**environment(), "DOCKER_BUILDKIT": "0"},
    )
    yield newer
    docker("image", "rm", newer)


def scaled_while(stack: Stack, *args: str) -> list[tuple[int, int]]:
    """Scales a NodePool again and again while a command of Compose runs, and once after it.

    Returns each target with how `nodepool` ended.
    """
    attempts = []
    with ThreadPoolExecutor(1) as background:
        running = background.submit(stack.run, *args)
        for target in cycle((4, 5, 6)):
            is_last = running.done()
            scale = ("--request-timeout", "120s", "scale", *SMALL, "--target", str(target))
            process = stack.start_cli(*scale)
            printed, _ = process.communicate(timeout=240)
            assert process.returncode in (0, UNREACHABLE), printed
            attempts.append((target, process.returncode))
            if is_last:
                break
        running.result()
    return attempts


def versions(stack: Stack) -> dict[str, set[str]]:
    """The versions of the images that the containers of each service have, by service."""
    found: dict[str, set[str]] = {}
    for container in stack.containers():
        version = container["Config"]["Labels"].get(VERSION_LABEL)
        if service_of(container) in (*PROGRAMS, "nats"):
            found.setdefault(service_of(container), set()).add(version)
    return found


def identities(stack: Stack) -> tuple[object, str]:
    """Which NodePools and Nodes there are, and what was asked for."""
    pools = {name: (p["metadata"]["uid"], p["spec"]) for name, p in stack.pools().items()}
    return pools, stack.cli("get", "nodes", "-o", "name")


def test_down_with_volumes_leaves_nothing(stack: Stack, checkout: Path) -> None:
    # given a project of its own, with a server alone
    alone = Stack(f"{stack.project}-down", checkout)
    try:
        alone.run("up", "--detach", "--no-build", "nats")

        # when it is taken down with its volumes
        alone.take_down("--volumes")

        # then nothing of it is left, but for a network that the engine itself cannot let go of
        assert [alone.ids(), alone.left("network"), alone.left("volume")] == [[], [], []]
    finally:
        alone.down()
