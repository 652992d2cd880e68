"""A user's terminal: lines that are pasted into a shell, with kubectl connected to the cluster."""

import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from testbed.cluster import Cluster, wait_until, without_skew

LINE_S = 200.0
END_S = 10.0


@dataclass(frozen=True, slots=True)
class Printed:
    """What a line printed, without kubectl's warning that it is older than the cluster.

    code: its exit code.
    """

    code: int
    out: str
    error: str

    @property
    def rows(self) -> Sequence[str]:
        """The lines of its output, with one space where there were more."""
        return rows(self.out)


class Shell:
    """Runs lines as a user of the cluster."""

    def __init__(self, cluster: Cluster, variables: Mapping[str, str] | None = None) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(cluster.folder),
            "KUBECONFIG": str(cluster.user_kubeconfig),
            **(variables or {}),
        }

    def run(self, line: str, given: str | None = None, **variables: str) -> Printed:
        """Runs a line; `given` is its standard input, `variables` are more of the environment."""
        done = subprocess.run(
            ["sh", "-c", line],
            input=given,
            env={**self._environment, **variables},
            capture_output=True,
            text=True,
            timeout=LINE_S,
            check=False,
        )
        return Printed(done.returncode, done.stdout, without_skew(done.stderr))

    @contextmanager
    def running(self, line: str) -> Iterator["Running"]:
        """Runs a line that does not end by itself, until the context ends: as Ctrl-C ends it.

        It prints to a terminal, since programs such as grep keep what they print to a file.
        """
        ours, terminal = pty.openpty()
        process = subprocess.Popen(
            ["sh", "-c", line],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(terminal)
        running = Running(ours)
        try:
            yield running
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            running.close()


class Running:
    """A line that runs; what it prints is read from its terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._printed = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # Nothing has this terminal open any more.
            while chunk := os.read(self._terminal, 65_536):
                self._printed += chunk

    @property
    def rows(self) -> Sequence[str]:
        """The lines that it has printed, with one space where there were more."""
        return rows(self._printed.decode())

    def wait_for(self, pattern: str, within_s: float = 30.0) -> None:
        """Returns once it has printed a line that matches."""
        wait_until(
            f"a line {pattern!r} is printed",
            lambda: any(re.search(pattern, row) for row in self.rows),
            within_s,
        )

    def close(self) -> None:
        """Reads what is left; its programs have ended."""
        self._reader.join(END_S)
        os.close(self._terminal)


def rows(text: str) -> Sequence[str]:
    """The lines of a text, with one space where there were more, and none at the ends."""
    return [" ".join(line.split()) for line in text.splitlines()]
