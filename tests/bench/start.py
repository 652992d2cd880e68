"""What `nodepool up` takes at rest, and what two commands beside it cost."""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.usage import Memory, read_memory
from testbed.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
NODEPOOL = Path(sys.executable).with_name("nodepool")
SET_UP = "Ctrl-C stops everything"
"""How the last line begins that `nodepool up` prints, once the examples are applied."""
SET_UP_S = 120.0
LOOK_S = 0.2
REST_S = 15.0
"""After how long `nodepool up` is at rest: the examples have their Nodes then."""
TIMES = 5


class Rest(NamedTuple):
    """The control plane of the demo at rest.

    services: the two processes of the services.
    up: the same, and `nodepool up` itself and what else it has started but the server.
    help_ms, get_ms: the processor time of `nodepool --help` and of `nodepool get nodepools`.
    """

    services: Memory
    up: Memory
    server: Memory
    help_ms: float
    get_ms: float


def measure_rest() -> Rest:
    """Start `nodepool up` with the examples, wait until it is at rest, and measure it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NODEPOOL_NATS_PORT": str(port := free_port()),
            "NODEPOOL_URL": f"nats://127.0.0.1:{port}",
        }
        with _start(Path(folder), environment) as pid:
            threading.Event().wait(REST_S)
            children = {child: _read_command(child) for child in _list_children(pid)}
            services = [child for child, words in children.items() if "nodepool.host" in words]
            server = [child for child, words in children.items() if "nats-server" in words[0]]
            others = children.keys() - {*services, *server}
            return Rest(
                read_memory(*services),
                read_memory(pid, *services, *others),
                read_memory(*server),
                _measure_cpu_ms(environment, "--help"),
                _measure_cpu_ms(environment, "get", "nodepools"),
            )


@contextmanager
def _start(folder: Path, environment: Mapping[str, str]) -> Iterator[int]:
    """Yield the process id of `nodepool up` once it has set up the demo."""
    output = folder / "output"
    data = str(folder / "data")
    command = [str(NODEPOOL), "up", "--data-dir", data, "--examples", str(EXAMPLES)]
    with output.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        ends, pause = time.monotonic() + SET_UP_S, threading.Event()
        while SET_UP not in output.read_text():
            if time.monotonic() > ends or process.poll() is not None:
                raise TimeoutError(f"nodepool up did not start: {output.read_text()}")
            pause.wait(LOOK_S)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _list_children(pid: int) -> Sequence[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text("ascii").split()]


def _read_command(pid: int) -> Sequence[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def _measure_cpu_ms(environment: Mapping[str, str], *arguments: str) -> float:
    """Return the median processor time of a command, with its start, in milliseconds."""
    return statistics.median(_run(environment, arguments) for _ in range(TIMES))


def _run(environment: Mapping[str, str], arguments: Sequence[str]) -> float:
    process = subprocess.Popen(
        [str(NODEPOOL), *arguments], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"nodepool {' '.join(arguments)}: exit code {process.returncode}")
    return (used.ru_utime + used.ru_stime) * 1e3
