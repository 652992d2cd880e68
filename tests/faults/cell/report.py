"""The report of a run."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Report:
    """The report of a run.

    faults: what is wrong; empty for a run in which every promise was kept.
    kills: how often each part was killed.
    figures: what was counted and measured, by name.
    kept: where the logs of all processes lie, of a run with faults.
    """

    seed: int
    faults: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    figures: dict[str, float] = field(default_factory=dict)
    kept: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        for name, value in self.figures.items():
            yield f"{name:<36}{value:>14,}"
        for name, count in sorted(self.kills.items()):
            yield f"{name + ' killed':<36}{count:>14}"
        yield from self.faults or ["every message is there once, and the past is as it was"]
        if self.kept:
            yield f"the logs of all processes are in {self.kept}"

    def keep(self, folder: Path) -> None:
        """Copy the logs of processes to a folder that stays."""
        self.kept = tempfile.mkdtemp(prefix="nodepool-cell-")
        for path in (*folder.glob("*.log*"), *folder.glob("*.err")):
            shutil.copy(path, self.kept)
