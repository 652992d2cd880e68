"""What became of the mutants of a run."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic

from mutation.mutants import Mutant
from mutation.workshop import Fate


@dataclass
class Report:
    """What became of each mutant.

    equivalent: how many were left out, because no test can notice them.
    """

    equivalent: int = 0
    fates: dict[str, Counter[Fate]] = field(default_factory=dict)
    survivors: list[Mutant] = field(default_factory=list)
    start: float = field(default_factory=monotonic)

    def add(self, mutant: Mutant, fate: Fate) -> None:
        """Count a mutant."""
        self.fates.setdefault(mutant.folder, Counter())[fate] += 1
        if fate is Fate.SURVIVED:
            self.survivors.append(mutant)

    @property
    def total(self) -> Counter[Fate]:
        """Return the counts of all packages together."""
        return sum(self.fates.values(), Counter())

    @property
    def share(self) -> float:
        """Return the share of mutants that the tests noticed."""
        return share(self.total)

    def lines(self) -> Iterator[str]:
        """Yield the report for people: the survivors, then the counts of each package."""
        for mutant in self.survivors:
            yield f"survived: {mutant.diff}\n"
        yield f"{'package':<28}{'mutants':>9}{'killed':>9}{'timed out':>11}{'share':>8}"
        for name, counts in (*self.fates.items(), ("all", self.total)):
            late = counts[Fate.TIMED_OUT]
            killed = counts[Fate.KILLED]
            yield f"{name:<28}{counts.total():>9}{killed:>9}{late:>11}{share(counts):>8.1%}"
        each_s = (monotonic() - self.start) / max(1, self.total.total())
        yield f"{each_s:.1f} s for each mutant; {self.equivalent} equivalent ones left out"


def share(counts: Counter[Fate]) -> float:
    """Return the share of mutants that did not survive; all of them if there is none."""
    return 1 - counts[Fate.SURVIVED] / counts.total() if counts else 1.0
