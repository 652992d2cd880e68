"""Which tests run a line, and how long they take."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation.mutants import Mutant

BUDGET_S = 30.0
"""How many seconds of tests of other parts one change is worth, the fast ones first."""


@dataclass(frozen=True)
class Trace:
    """What a run of all tests on the code as it is has shown.

    seconds: how long each test keeps the processor busy.
    lines: the tests that run each line of each module.
    """

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, Sequence[str]]]

    def stages(self, mutant: Mutant, own: Sequence[str]) -> list[list[str]]:
        """Return the tests that run what a mutant changes, in the stages in which they run.

        All tests in the files `own` come first, then others as far as there is time for them.
        """
        tests = self._of(mutant)
        first = [test for test in tests if test.partition("::")[0] in own]
        rest, left_s = [], BUDGET_S
        for test in (each for each in tests if each not in first):
            left_s -= self.seconds[test]
            if left_s >= 0:
                rest.append(test)
        return [stage for stage in (first, rest) if stage]

    def _of(self, mutant: Mutant) -> list[str]:
        """Return all tests that run what a mutant changes, the fast ones first."""
        lines = self.lines.get(mutant.path.as_posix(), {})
        found = {test for line in mutant.lines for test in lines.get(line, ())}
        # What the import runs, such as a field, and what no test runs counts for the whole module.
        found = found or {test for tests in lines.values() for test in tests}
        return sorted(found, key=lambda test: (self.seconds[test], test))


def read_trace(path: Path) -> Trace:
    """Return what the plugin has written."""
    content = json.loads(path.read_text(encoding="utf-8"))
    names = list(content["seconds"])
    lines = {
        module: {int(line): [names[number] for number in numbers] for line, numbers in all_.items()}
        for module, all_ in content["lines"].items()
    }
    return Trace(content["seconds"], lines)
