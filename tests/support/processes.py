"""The whole house as real processes, each of which can be killed and comes back."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from nodepool.local.server import NatsServer, find_server, free_port

SERVICES = (
    "validator",
    "quota",
    "capacity",
    "allocator",
    "lifecycle",
    "preemption",
    "aggregator",
    "fleet",
)


class ControlPlane:
    """A nats-server and so many replicas of every service; what ends is started again."""

    def __init__(self, folder: Path, replicas: int = 1) -> None:
        self.server = NatsServer(folder / "nats", free_port(), find_server(None))
        self._folder = folder
        self._names = [f"{name}.{number}" for name in SERVICES for number in range(replicas)]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = threading.Event()
        self._keepers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.server.start()
        for name in self._names:
            self._start(name)
            keeper = threading.Thread(target=self._keep, args=(name,), daemon=True)
            keeper.start()
            self._keepers.append(keeper)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for process in self._processes.values():
            process.terminate()
        for keeper in self._keepers:
            keeper.join(15)
        for process in self._processes.values():
            process.kill()
            process.wait()
        self.server.stop()

    @property
    def names(self) -> Sequence[str]:
        """Every replica: service, dot, number."""
        return self._names

    def _start(self, name: str) -> None:
        log = self._folder / f"{name}.log"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NODEPOOL_URL": self.server.url,
            "NODEPOOL_LOG_FILE": str(log),
        }
        with (self._folder / f"{name}.err").open("ab") as errors:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", name.partition(".")[0]], env=environment, stderr=errors
            )

    def _keep(self, name: str) -> None:
        while not self._stopping.is_set():
            self._processes[name].wait()
            if not self._stopping.is_set():
                self._start(name)

    def kill(self, name: str) -> None:
        """SIGKILL for one replica; it is started again at once."""
        self._processes[name].send_signal(signal.SIGKILL)

    def kill_server(self) -> None:
        """SIGKILL for the nats-server, and a new one on the same data."""
        self.server.kill()
        self.server.start()

    def errors(self) -> str:
        """What the services wrote to standard error, which is nothing while all is well."""
        return "".join(path.read_text() for path in sorted(self._folder.glob("*.err")))
