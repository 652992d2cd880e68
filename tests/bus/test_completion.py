"""The completion scripts in the shells themselves, each typed into at a terminal."""

import os
import pty
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bus.harness import PATIENCE_S

SHELLS = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(nodepool completion bash)"'),
    "zsh": (
        ["zsh", "--no-rcs", "-i"],
        'autoload -Uz compinit; compinit -u; eval "$(nodepool completion zsh)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "nodepool completion fish | source"),
}
CONTROL = re.compile(r"\x1b\[[0-9;?>=]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]|\x1b\][^\x07]*\x07")


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, argv: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self._process, self._terminal = pty.fork()
        if self._process == 0:
            os.chdir(folder)
            os.execvpe(argv[0], list(argv), environment)

    def type(self, text: str) -> None:
        """Types a text."""
        os.write(self._terminal, text.encode())

    def read_until(self, text: str) -> str:
        """What the program prints, up to a text; fails where it does not print it."""
        printed, deadline = "", time.monotonic() + PATIENCE_S
        while text not in printed:
            ready, _, _ = select.select([self._terminal], [], [], deadline - time.monotonic())
            assert ready, f"{text!r} was not printed, but {printed!r}"
            chunk = os.read(self._terminal, 65_536)
            if b"\x1b[c" in chunk or b"\x1b[0c" in chunk:
                self.type("\x1b[?1;2c")  # The terminal is asked what it is.
            printed += CONTROL.sub("", chunk.decode(errors="replace"))
        return printed

    def close(self) -> None:
        """Ends the program."""
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._terminal)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `nodepool` is the program of this checkout."""
    program = tmp_path / "bin" / "nodepool"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodepool.cli "$@"\n')
    program.chmod(0o755)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "pools.yaml").touch()
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(tmp_path),
        "TERM": "xterm",
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_verbs_files_and_conditions_are_completed(
    shell: str, environment: dict[str, str], tmp_path: Path
) -> None:
    argv, load = SHELLS[shell]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    terminal = Terminal(argv, tmp_path, environment)
    try:
        terminal.type(f'{load}; echo LOAD""ED\r')
        terminal.read_until("LOADED")

        for typed, completed in (
            ("nodepool repl\t", "replace"),
            ("-f deep/po\t", "pools.yaml"),
            ("\x15nodepool get np,mach\t", "np,machines"),
            ("\x15nodepool wait np a --for=condition=NodesR\t", "NodesRemoved"),
        ):
            terminal.type(typed)
            start = typed.removesuffix("\t").rpartition(" ")[2].rpartition("/")[2]
            rest = completed.removeprefix(start.rpartition("=")[2])
            terminal.read_until(rest)
    finally:
        terminal.close()
