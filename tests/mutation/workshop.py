"""A copy of the repository in which modules are changed and tests run; nothing outlives it."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mutation.mutants import Mutant
from mutation.trace import Trace, read_trace
from mutation.tracing import FOLDERS, RESULT

LEFT_OUT = (".git", ".venv*", ".nodepool", "__pycache__", ".*_cache", ".hypothesis", "node_modules")
MEMORY_MAX = 6 << 30
"""How many bytes the tests may take, so that an endless loop does not fill the machine."""
TRACE_MAX_S = 1800
"""How long all tests may take without a change."""
MUTANT_MAX_S = 300
"""How long the tests of a stage may take with one."""
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Python takes bytecode for that of a module which has the same size and was written in the same
second, as a mutant can be, so no run may leave any; see
https://docs.python.org/3/reference/import.html#cached-bytecode-invalidation."""
PLUGINS = str(Path(__file__).parents[1])
"""Where pytest finds the package of this module."""
TEST_MAX_S = 60
"""How long one test may take; an endless loop ends then, which counts as noticed."""
OPTIONS = (
    *("-x", "-q", "-k", "not live", "-p", "no:cacheprovider"),
    *(f"--timeout={TEST_MAX_S}", "--hypothesis-seed=0"),
)
NO_TESTS = 5
"""What pytest exits with where there are no tests; other codes say that something failed."""


class Fate(Enum):
    """How the tests took a change."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"


class Unusable(Exception):
    """The tests say nothing about a change."""


@dataclass(frozen=True)
class Workshop:
    """The folder of a copy."""

    root: Path

    def try_out(self, mutant: Mutant, stages: Sequence[Sequence[str]]) -> Fate:
        """Return whether the tests of some stage notice a mutant, and put its module back.

        A mutant that no test runs survives.
        """
        module = self.root / mutant.path
        module.write_text(mutant.code, encoding="utf-8")
        try:
            fates = (self._try_stage(stage) for stage in stages)
            return next((fate for fate in fates if fate is not Fate.SURVIVED), Fate.SURVIVED)
        finally:
            module.write_text(mutant.source, encoding="utf-8")

    def _try_stage(self, tests: Sequence[str]) -> Fate:
        code, output = self._run(tests, MUTANT_MAX_S, {})
        if code == NO_TESTS:
            raise Unusable(f"no tests were run:\n{output}")
        return Fate.TIMED_OUT if code is None else Fate.KILLED if code else Fate.SURVIVED

    def trace(self, tests: Sequence[str], folders: Sequence[str]) -> Trace:
        """Run tests on the code as it is, which they must accept; return which lines they run."""
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "trace.json"
            seen = {FOLDERS: os.pathsep.join(folders), RESULT: str(result), "PYTHONPATH": PLUGINS}
            code, output = self._run(["-p", "mutation.tracing", *tests], TRACE_MAX_S, seen)
            if code != 0:
                raise Unusable(f"the tests do not pass without a change:\n{output}")
            return read_trace(result)

    def _run(
        self, arguments: Sequence[str], limit_s: float, environment: Mapping[str, str]
    ) -> tuple[int | None, str]:
        """Run tests; return the exit code, None if they took too long, and the end of the output.

        They are a session of their own, which is ended as a whole whatever happens.
        """
        command = [sys.executable, "-m", "pytest", *OPTIONS, *arguments]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env={**os.environ, **NO_BYTECODE, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
                code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
            output.seek(0)
            return code, output.read().decode(errors="replace")[-2000:]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End all that runs in the session of a process."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def open_workshop(source: Path) -> Iterator[Workshop]:
    """Copy a repository to a temporary folder for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="nodepool-mutation-") as folder:
        root = Path(folder) / "copy"
        shutil.copytree(source, root, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        yield Workshop(root)
