"""Running a program in its own process group on this machine, and ending it like a container.

The program gets SIGTERM, and is killed when its grace period is over; see
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nodepool.local.guard import Guard

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""The exit codes of shells for a program that is not executable, and for a missing program."""
BY_SIGNAL = 128
"""What shells add to the number of the signal that ended a program."""


class NotStarted(Exception):
    """A program that cannot be run; its text is one line.

    code: the exit code that a shell would return.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def executable(name: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program, found as a shell finds it; raise `NotStarted` if not found."""
    path = shutil.which(name, path=environment.get("PATH"))
    if path is not None:
        return path
    found = shutil.which(name, mode=os.F_OK, path=environment.get("PATH"))
    if found is None and not (os.sep in name and Path(name).exists()):
        raise NotStarted(NOT_FOUND, f"{name}: command not found")
    why = "is a directory" if Path(found or name).is_dir() else "is not executable"
    raise NotStarted(NOT_EXECUTABLE, f"{name}: {why}")


class LocalProcess:
    """A running program, which writes directly to the output of this process."""

    def __init__(self, process: asyncio.subprocess.Process, grace_s: int) -> None:
        self._process = process
        self._guard = Guard(process.pid, group_grace_s=grace_s)
        self._ending_since: float | None = None
        self._kill: asyncio.TimerHandle | None = None
        self._kill_at = float("inf")

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], *, grace_s: int = 30
    ) -> "LocalProcess":
        """Start a program with these arguments; raise `NotStarted` if it cannot be started.

        The program cannot read from a terminal, since it is not in the foreground there. If this
        process is killed, the program is asked to end, and killed `grace_s` seconds later.
        """
        path = executable(command[0], environment)
        stdin = asyncio.subprocess.DEVNULL if _is_terminal() else None
        try:
            process = await asyncio.create_subprocess_exec(
                *command, executable=path, env=environment, stdin=stdin, process_group=0
            )
        except OSError as error:
            raise NotStarted(NOT_EXECUTABLE, f"{command[0]}: {error.strerror}") from None
        return cls(process, grace_s)

    @property
    def is_ending(self) -> bool:
        """Return whether the program was asked to end."""
        return self._ending_since is not None

    def terminate(self, grace_s: float) -> None:
        """Ask the program to end, and kill it `grace_s` seconds after the first such request."""
        if self._ending_since is None:
            self._ending_since = asyncio.get_running_loop().time()
            self._signal(signal.SIGTERM)
        self.kill_after(grace_s)

    def kill_after(self, seconds: float) -> None:
        """Kill the program so long after the request to end it, unless a kill is due sooner."""
        loop = asyncio.get_running_loop()
        moment = (self._ending_since or loop.time()) + seconds
        if moment < self._kill_at:
            if self._kill is not None:
                self._kill.cancel()
            self._kill_at = moment
            self._kill = loop.call_at(moment, self.kill)

    def kill(self) -> None:
        """Kill the program and all processes of its group."""
        self._signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Return the exit code as a shell gives it, once the program ends; kill what it started."""
        code = await self._process.wait()
        self._guard.dismiss()
        if self._kill is not None:
            self._kill.cancel()
        self.kill()
        return code if code >= 0 else BY_SIGNAL - code

    def _signal(self, number: signal.Signals) -> None:
        # The group may be gone, or its remaining processes may belong to another user.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _is_terminal() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # Standard input is closed.
        return False
