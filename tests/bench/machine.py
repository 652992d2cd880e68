"""The machine that a run is made on."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from bench.table import Machine
from nodepool.local.binary import find_server


def describe_machine() -> Machine:
    """Return what a reader has to know of this machine and of the programs on it."""
    now = datetime.now(UTC)
    return Machine(
        day=f"{now.day} {now:%B %Y}",
        cpu=_find_value("/proc/cpuinfo", "model name"),
        cores=os.cpu_count() or 1,
        memory_gb=round(int(_find_value("/proc/meminfo", "MemTotal").split()[0]) / 2**20),
        python=platform.python_version(),
        server=_read_server_version(),
    )


def _find_value(path: str, name: str) -> str:
    """Return the first value with this name in a file of Linux; `unknown` without one."""
    for line in Path(path).read_text("utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _read_server_version() -> str:
    command = [str(find_server(None)), "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return shown.strip().rpartition("v")[2]
