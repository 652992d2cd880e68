"""Processes that are stopped, continued and killed, and started again when they have ended."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodepool.contract.services import SERVICES

REPLICAS = 2
GUARD = ["/bin/sh", "-c", 'read -r _; kill -KILL "$0"']
"""Kills a process once nobody holds the other end of its standard input, be it stopped or not."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process:
    """A program; ended for certain, also when this process is killed."""

    def __init__(
        self, name: str, command: Sequence[str], errors: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.errors = errors
        self.starts = 0
        self.is_stopped = False
        self._command = command
        self._environment = {"PATH": os.environ["PATH"], **environment}
        self._process: asyncio.subprocess.Process | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """How it ended last; None while it runs. Negative for a signal."""
        return self._process.returncode if self._process is not None else None

    async def start(self) -> None:
        """Starts it, unless it runs."""
        if self.is_running:
            return
        with self.errors.open("ab") as sink:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=self._environment,
                start_new_session=True,
            )
        self._set_guard(self._process.pid)
        self.starts += 1
        self.is_stopped = False

    def stop(self) -> None:
        """SIGSTOP: it does nothing until `go_on`, and knows nothing of it."""
        self._signal(signal.SIGSTOP)
        self.is_stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)
        self.is_stopped = False

    async def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()
        self._dismiss_guard()
        self.is_stopped = False

    def _set_guard(self, pid: int) -> None:
        self._dismiss_guard()
        command = [*GUARD, str(pid)]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def _dismiss_guard(self) -> None:
        """Ends the guard, before the id of the process may be that of another one."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def rss_bytes(self) -> int:
        """How much memory it holds; 0 where it has ended, or where the system does not say."""
        if self._process is None or self._process.returncode is not None:
            return 0
        try:
            pages = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * PAGE_BYTES

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


def service_processes(folder: Path, url: str, copies: int) -> list[Process]:
    """Two replicas of each service."""
    return [
        Process(
            f"{name}-{number}",
            [sys.executable, "-m", name],
            folder / f"{name}-{number}.err",
            {
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NODEPOOL_URL": url,
                "NODEPOOL_REPLICAS": str(copies),
                "NODEPOOL_LOG_LEVEL": "warning",
                "NODEPOOL_LOG_FILE": str(folder / f"{name}-{number}.log"),
            },
        )
        for name in SERVICES
        for number in range(REPLICAS)
    ]
