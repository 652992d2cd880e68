"""The compose file at work in a project of its own, on ports of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from containers.engine import compose, environment
from nodepool.contract.services import SHARED
from testbed.pages import page
from testbed.ports import free_port

PATIENCE_S = 120.0
"""How long anything may take on a machine that has much else to do."""
COMMAND_S = 600.0
"""How long a command of Compose may take, in seconds: the first one builds images."""
PAUSE_S = 0.3
BRING_UP = "docker compose up --build"
"""What the pages have a new user type."""
LABEL = "com.docker.compose"
IMAGE = "nodepool-test"
IMAGE_OF_BUS = f"{IMAGE}-bus"
IMAGE_OF_ARCHIVER = f"{IMAGE}-archiver"
IMAGE_OF_METAL = f"{IMAGE}-metal"
"""What the images of this project are called: not what a developer may have built."""
ONCE = ("auth", "provision", "demo")
"""What does its work once, and ends."""
OPERATOR = "/auth/keys/operator.nk"
"""Where the key of the operator is in a container."""
PORTS = ("BUS_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT")

Inspected = dict[str, Any]
"""A container as `docker inspect` shows it."""


def docker(*args: str, check: bool = True) -> str:
    """What a command of docker prints."""
    done = subprocess.run(
        ["docker", *args], capture_output=True, text=True, check=False, timeout=COMMAND_S
    )
    assert not check or done.returncode == 0, f"docker {' '.join(args)}: {done.stderr}"
    return done.stdout.strip()


def until(
    condition: Callable[[], object], what: Callable[[], object] | str, within_s: float = PATIENCE_S
) -> None:
    """Returns once the condition holds; fails with what was waited for where it does not.

    what: names it; or shows how things are when the time is up.
    """
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= end:
            shown = what() if callable(what) else what
            raise AssertionError(f"not within {within_s:.0f} s: {shown}")
        # A pause between two looks; each of them starts a program.
        threading.Event().wait(PAUSE_S)


@dataclass
class Stack:
    """One project of the compose file.

    project: its name; containers, networks and volumes are named after it.
    folder: where the compose file is.
    options: further options of Compose, such as an environment file.
    variables: those that the compose file reads; names and ports keep to what is this project's.
    keys: the copies of keys that are there, by where each is in a container.
    """

    project: str
    folder: Path
    options: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)
    keys: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variables |= {"COMPOSE_PROJECT_NAME": self.project}
        self.variables |= {"IMAGE": IMAGE, "IMAGE_OF_BUS": IMAGE_OF_BUS}
        self.variables["IMAGE_OF_ARCHIVER"] = IMAGE_OF_ARCHIVER
        self.variables["IMAGE_OF_METAL"] = IMAGE_OF_METAL
        self.variables |= {name: str(free_port()) for name in PORTS}

    # What is done with it.

    def run(self, *args: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Runs a command of Compose on the project."""
        done = subprocess.run(
            [*compose(), *self.options, *args],
            cwd=self.folder,
            env={**environment(), **self.variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        assert not check or done.returncode == 0, f"{' '.join(args)}: {done.stdout}{done.stderr}"
        return done

    def up(self, *args: str) -> None:
        """Starts everything, and returns once all is at work."""
        self.run("up", *args, "--detach")
        self.wait_until_at_work()

    def take_down(self, *args: str) -> None:
        """Removes every container and network of the project, and keeps its volumes.

        An engine may keep the endpoint of a container that is gone, and with it the network, see
        https://github.com/moby/moby/issues/33156; that is taken from it as people do.

        args: further options, such as that the volumes are removed too.
        """
        done = self.run("down", "--timeout", "30", *args, check=False)
        printed = f"{done.stdout}{done.stderr}"
        assert done.returncode == 0 or "has active endpoints" in printed, printed
        assert self.ids() == []
        for network in self.left("network"):
            each = "{{range .Containers}}{{.Name}} {{end}}"
            held = docker("network", "inspect", "--format", each, network).split()
            assert held or done.returncode != 0, f"{network} is left, and nothing holds it"
            for name in held:
                docker("network", "disconnect", "--force", network, name)
            docker("network", "rm", network)

    def down(self) -> None:
        """Removes every container, network and volume of the project, and copies of its keys."""
        self.run("down", "--volumes", "--remove-orphans", "--timeout", "30", check=False)
        for container in self.ids():
            docker("rm", "--force", "--volumes", container, check=False)
        for kind in ("network", "volume"):
            for name in self.left(kind):
                docker(kind, "rm", name, check=False)
        for copy in self.keys.values():
            shutil.rmtree(copy.parent)
        self.keys.clear()

    def left(self, kind: str) -> list[str]:
        """The names of the project's networks or volumes."""
        select = f"label={LABEL}.project={self.project}"
        return docker(kind, "ls", "--quiet", "--filter", select).split()

    # What there is.

    def ids(self, service: str | None = None) -> list[str]:
        """The ids of the project's containers, or of those of one service."""
        select = ["--filter", f"label={LABEL}.project={self.project}"]
        if service is not None:
            select += ["--filter", f"label={LABEL}.service={service}"]
        return docker("ps", "--all", "--quiet", "--no-trunc", *select).split()

    def containers(self, service: str | None = None) -> list[Inspected]:
        """The project's containers, or those of one service, by name."""
        ids = self.ids(service)
        found: list[Inspected] = json.loads(docker("inspect", *ids, check=False) or "[]")
        return sorted(found, key=lambda container: str(container["Name"]))

    def names(self) -> dict[str, int]:
        """How many containers each service has."""
        counts: dict[str, int] = {}
        for container in self.containers():
            name = service_of(container)
            counts[name] = counts.get(name, 0) + 1
        return counts

    def obstacles(self) -> list[str]:
        """What is not at work yet: a line for each container that is not healthy or not done."""
        containers = self.containers()
        if not containers or len(containers) < len(self.ids()):
            return ["the engine does not show every container"]
        return [
            f"{container['Name'][1:]}: {state['Status']}, {health}"
            for container in containers
            for state in [container["State"]]
            for health in [state.get("Health", {}).get("Status", "healthy")]
            if (state["Status"], health) != ("running", "healthy")
            and not (service_of(container) in ONCE and _done(state))
        ]

    def wait_until_at_work(self) -> None:
        """Returns once every container is healthy, and the demo has done its work."""
        until(lambda: not self.obstacles(), lambda: "; ".join(self.obstacles()))
        self.cli("wait", "nodepool", "--all", "--for", "condition=AtTarget", "--timeout", "60s")

    # What others see of it.

    @property
    def url(self) -> str:
        """The address of the server, for this machine."""
        return f"nats://127.0.0.1:{self.variables['BUS_PORT']}"

    def key(self, place: str = OPERATOR) -> Path:
        """A copy of a key of the project, the operator's for one; the page says how to make it."""
        if place not in self.keys:
            # Not in the folder with the compose file, from which images are built.
            copy = Path(tempfile.mkdtemp(prefix=f"{self.project}-")) / Path(place).name
            self.run("cp", f"auth:{place}", str(copy))
            self.keys[place] = copy
        return self.keys[place]

    def start_cli(self, *args: str, key: Path | None = None) -> "subprocess.Popen[str]":
        """Starts `nodepool` on this machine, on the project; with the operator's key for one."""
        return subprocess.Popen(
            [sys.executable, "-m", "nodepool.cli", *args],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NODEPOOL_URL": self.url,
                "NODEPOOL_NKEY_FILE": str(key or self.key()),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def cli(self, *args: str, key: Path | None = None) -> str:
        """What `nodepool` prints on this machine, on the project."""
        process = self.start_cli(*args, key=key)
        printed, _ = process.communicate(timeout=COMMAND_S)
        assert process.returncode == 0, f"nodepool {' '.join(args)}: {printed}"
        return printed

    def works(self, *args: str, key: Path | None = None) -> bool:
        """Whether a command of `nodepool` ends with 0."""
        process = self.start_cli(*args, key=key)
        process.communicate(timeout=COMMAND_S)
        return process.returncode == 0

    def pools(self) -> dict[str, Inspected]:
        """The NodePools as the read model has them, by name."""
        items = json.loads(self.cli("get", "nodepools", "-o", "json"))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def page(self, port: str, path: str) -> Any:
        """A JSON page of Prometheus, Alertmanager or Grafana; None while it does not answer."""
        try:
            return json.loads(page(f"http://127.0.0.1:{self.variables[port]}{path}"))
        except (OSError, ValueError):
            return None

    def answered(self, port: str, path: str) -> Inspected:
        """As `page`, as soon as it answers."""
        pages: list[Inspected] = []

        def answers() -> bool:
            page = self.page(port, path)
            pages.extend([] if page is None else [page])
            return bool(pages)

        until(answers, f"an answer to {path}")
        return pages[0]


def _done(state: Inspected) -> bool:
    return bool(state["Status"] == "exited" and state["ExitCode"] == 0)


def service_of(container: Inspected) -> str:
    """The service that a container is of."""
    return str(container["Config"]["Labels"][f"{LABEL}.service"])


def kill(container: Inspected) -> None:
    """Ends everything in a container at once, as a lack of memory or a bug would.

    Not `docker kill`, after which the engine does not start it again.
    """
    os.kill(container["State"]["Pid"], signal.SIGKILL)


def inside(container: Inspected, code: str) -> str:
    """What a piece of Python prints that is run in a container."""
    return docker("exec", container["Id"], "python", "-c", code)


PROGRAMS = (*SHARED, "demo")
"""What runs from the image of this project."""


only_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may kill the process of a container"
)
"""Marks a test that kills."""


def killed_and_started_again(stack: Stack, name: str) -> None:
    """Kills the one container of a service, and returns once the engine has started it again.

    Everything is at work by then, and the NodePools are those of before.
    """
    uids = {pool["metadata"]["uid"] for pool in stack.pools().values()}
    (before,) = stack.containers(name)

    kill(before)

    def again() -> bool:
        return bool(stack.containers(name)[0]["RestartCount"] > before["RestartCount"])

    until(again, f"{name} started again")
    stack.wait_until_at_work()
    assert {pool["metadata"]["uid"] for pool in stack.pools().values()} == uids
