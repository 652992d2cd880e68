"""The lines of a run, as text for a terminal and as a table for a page."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from manifests.marks import fill

NOT_MEASURED = "not measured: "


class Line(NamedTuple):
    """One measure.

    result: the figures, or `not measured:` and the reason.
    budget: what the figures are held against; empty for nothing.
    """

    what: str
    result: str
    budget: str = ""


class Machine(NamedTuple):
    """Where and when a run was made.

    day: the date, as `28 November 2026`.
    python, server: the versions of Python and of nats-server.
    """

    day: str
    cpu: str
    cores: int
    memory_gb: int
    python: str
    server: str

    def __str__(self) -> str:
        return (
            f"{self.day}, {self.cores} cores of {self.cpu}, {self.memory_gb} GB, "
            f"Python {self.python}, nats-server {self.server}"
        )


def format_line(line: Line) -> str:
    """Return a line for a terminal."""
    budget = f"   (budget: {line.budget})" if line.budget else ""
    return f"{line.what:<64} {line.result}{budget}"


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    every = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in every)


def format_run(machine: Machine, runs: int, lines: Iterable[Line]) -> str:
    """Return the table of a run, under a sentence that says where and when it was made."""
    head = f"{machine}. Lines of several runs, here {runs}: median (lowest to highest).\n"
    return f"\n{head}\n{format_table(('What', 'Result', 'Budget'), lines)}\n"


def write_part(page: Path, name: str, part: str) -> None:
    """Replace what a page has between the marks of this name."""
    text = page.read_text(encoding="utf-8")
    page.write_text(fill(text, {name: part}), encoding="utf-8")
