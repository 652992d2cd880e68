"""Mutants that no test can notice, each with its reason."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation.mutants import Mutant

LIST = Path(__file__).with_name("equivalents.toml")


@dataclass(frozen=True)
class Equivalent:
    """A change to a module that changes nothing that it does.

    change: the lines that it takes away and adds, each with its sign.
    """

    path: str
    change: Sequence[str]
    why: str

    def matches(self, mutant: Mutant) -> bool:
        """Return whether it is the change of this mutant."""
        return self.path == mutant.path.as_posix() and tuple(self.change) == mutant.change


def read_equivalents(path: Path = LIST) -> Sequence[Equivalent]:
    """Return the list of the equivalent mutants."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["equivalent"]
    return [Equivalent(**entry) for entry in entries]
