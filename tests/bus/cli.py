"""`nodepool up` as a process, and commands to the control plane that it runs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from nodepool.cli.app import run
from nodepool.local.server import NatsServer
from testbed.ports import free_port

ZONE, H100, A100 = "US-EAST-04A", "gd-8xh100ib-i128", "gd-8xa100-i128"
FULL = "nodepool.compute.coreweave.com"
MANIFEST = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: {name}
spec:
  instanceType: {type}
  targetNodes: {target}
"""


class Done(NamedTuple):
    """A command that has ended: its exit code, output and error output."""

    code: int
    out: str
    err: str


Nodepool = Callable[..., Done]


def environment(port: int) -> dict[str, str]:
    """The environment of a `nodepool` process that starts or finds its server on this port."""
    others = {name: text for name, text in os.environ.items() if not name.startswith("NODEPOOL_")}
    return {
        **others,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_NATS_PORT": str(port),
    }


def started(
    port: int,
    *arguments: str,
    stderr: int | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[str]:
    """A `nodepool` process whose output can be read; `stderr` is as `Popen` has it.

    settings: further variables of its environment.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "nodepool.cli", *arguments],
        env={**environment(port), **settings},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


@contextmanager
def watching(server: NatsServer, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A `nodepool` process that watches what a server has; killed at the end."""
    arguments = ("--url", server.url, *arguments)
    with started(free_port(), *arguments, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines that a process prints, up to one that contains a text."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    pytest.fail(f"it ended without {text!r}: {lines}")


class Up(NamedTuple):
    """A control plane that runs, and what it has printed."""

    port: int
    printed: list[str]


@contextmanager
def running(folder: Path, *arguments: str, **settings: str) -> Iterator[Up]:
    """Everything on this machine, with its data in this folder, until Ctrl-C."""
    port = free_port()
    # Users get two processes of services, as test_up.py shows; the second takes a second to start.
    settings = {"NODEPOOL_PROCESSES": "1", **settings}
    with started(port, "up", "--data-dir", str(folder), *arguments, settings=settings) as process:
        try:
            yield Up(port, lines_until(process, "Ctrl-C stops everything"))
            process.send_signal(signal.SIGINT)
            lines_until(process, "stopping; everything is kept in the log")
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert "".join(path.read_text() for path in folder.glob("logs/*.err")) == ""


def commands(port: int, capsys: pytest.CaptureFixture[str]) -> Nodepool:
    """Runs one command in this process, with what it is given."""

    def command(*arguments: str) -> Done:
        code = run(["--url", f"nats://127.0.0.1:{port}", *arguments])
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return command
