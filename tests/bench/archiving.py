"""What an archiver costs the control plane beside it, and how far it is behind the log."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.pipeline import Run, create_pools
from bench.usage import cpu_s
from nodepool.nats.log.api import last_position
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import connect
from testbed.processes import ControlPlane

QUIET_S = 60.0
"""How long the archive may take to have everything, at most."""
LOOK_S = 0.1


class Archiving(NamedTuple):
    """A pipeline without and with an archiver beside it.

    alone_s, beside_s: the seconds of both.
    cpu_share: the archiver's part of the processor time of services, server and archiver.
    quiet_s: from the last command until the archive had the whole log.
    bytes: of a message in the archive, on average.
    """

    alone_s: float
    beside_s: float
    cpu_share: float
    quiet_s: float
    bytes: float


def archiving(commands: int, window: int) -> Archiving:
    """Measure as many commands as this one after the other, on new control planes."""
    with tempfile.TemporaryDirectory() as name, ControlPlane(Path(name), processes=2) as plane:
        alone = create_pools(plane, commands, 0, window)
    with tempfile.TemporaryDirectory() as name, ControlPlane(Path(name), processes=2) as plane:
        archive = Path(name) / "archive"
        with _archiver(plane.server.url, archive) as pid:
            before = cpu_s(pid)
            beside = create_pools(plane, commands, 0, window)
            used = cpu_s(pid) - before
            began, pause = time.monotonic(), threading.Event()
            last = uvloop.run(_last(plane.server.url))
            while _archived(archive) < last and time.monotonic() - began < QUIET_S:
                pause.wait(LOOK_S)
            quiet_s = time.monotonic() - began
        size = sum(path.stat().st_size for path in archive.rglob("*.parquet"))
    share = used / (used + _cpu(beside))
    return Archiving(alone.seconds, beside.seconds, share, quiet_s, size / last)


def _cpu(run: Run) -> float:
    return run.server_cpu_s + run.services_cpu_s


@contextmanager
def _archiver(url: str, archive: Path) -> Iterator[int]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_URL": url,
        "NODEPOOL_ARCHIVE": str(archive),
        "NODEPOOL_LOG_FILE": str(archive.with_name("archiver.log")),
    }
    pause = threading.Event()
    with subprocess.Popen([sys.executable, "-m", "archiver"], env=environment) as process:
        try:
            while not (archive / "log.json").exists():
                pause.wait(LOOK_S)
            yield process.pid
        finally:
            process.terminate()


async def _last(url: str) -> int:
    connection = await connect(url, "bench")
    last = await last_position(connection, STREAM)
    await connection.close()
    return last


def _archived(archive: Path) -> int:
    """Up to which position there are segments."""
    ends = (int(path.name.split("-")[1]) for path in archive.rglob("*.parquet"))
    return max(ends, default=0)
