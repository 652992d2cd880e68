"""Notes which tests run each line: a plugin of pytest, for one run on the code as it is.

It reads from the environment what to look at, and writes what it has seen to a file.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import coverage

FOLDERS = "MUTATION_FOLDERS"
RESULT = "MUTATION_RESULT"

_seconds: dict[str, float] = defaultdict(float)
_coverage: list[coverage.Coverage] = []


def pytest_configure() -> None:
    """Begin before any of the modules is imported."""
    folders = [str(Path(each).absolute()) for each in os.environ[FOLDERS].split(os.pathsep)]
    found = coverage.Coverage(data_file=None, config_file=False, source=folders)
    found.start()
    _coverage.append(found)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Count what runs from now on as part of a test."""
    _seconds[nodeid] -= process_time()
    _coverage[0].switch_context(nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Count what runs between tests as part of none."""
    _coverage[0].switch_context("")
    _seconds[nodeid] += process_time()


def pytest_sessionfinish() -> None:
    """Write how long each test takes, and the lines of each module with the tests that run them."""
    _coverage[0].stop()
    lines = dict(_lines(_coverage[0].get_data(), {name: n for n, name in enumerate(_seconds)}))
    Path(os.environ[RESULT]).write_text(json.dumps({"seconds": _seconds, "lines": lines}))


def _lines(
    data: coverage.CoverageData, numbers: dict[str, int]
) -> Iterator[tuple[str, dict[int, list[int]]]]:
    for file in data.measured_files():
        found: dict[int, list[int]] = defaultdict(list)
        for line, names in data.contexts_by_lineno(file).items():
            found[line] = [numbers[name] for name in names if name in numbers]
        yield str(Path(file).relative_to(Path.cwd())), found
