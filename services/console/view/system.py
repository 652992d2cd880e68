"""The system as operators see it: each service, the log, its archive, and the dead letters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from console.view.words import Word
from nodepool.contract.counting import format_count

_WORDS: Final = {
    "ok": Word("ok", "OK"),
    "note": Word("wait", "Note"),
    "problem": Word("act", "Needs a person"),
}
_RANKS: Final = ("problem", "note", "ok")
SERVICE: Final = "service "
"""The beginning of the name of a check of a service."""
STORED: Final = (
    "log",
    "stream",
    "trimming",
    "archive",
    "floor",
    "beginning",
    "JetStream",
    "storage",
)
"""The beginnings of the names of checks about storage."""


class Found(NamedTuple):
    """A finding of the doctor: the check, its status, the finding, and the fix."""

    check: str
    status: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class Check:
    """A line of the page."""

    name: str
    word: Word
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that a service could not process: a dead letter."""

    position: int
    time: datetime
    service: str
    input: int
    subject: str
    cause: str
    is_command: bool


@dataclass(frozen=True, slots=True)
class SystemPage:
    """What the page shows: groups of checks, with those that need a person first."""

    title: str
    groups: tuple[tuple[str, tuple[Check, ...]], ...]
    needs_person: int


def build_system(findings: Sequence[Found], letters: int) -> SystemPage:
    """Return the page; `letters` counts the dead letters."""
    problems = sum(each.status == "problem" for each in findings)
    return SystemPage(_title(findings, problems, letters), tuple(_groups(findings)), problems)


def _title(findings: Sequence[Found], problems: int, letters: int) -> str:
    if not findings:
        return "Checks are running"
    parked = f"; {format_count(letters, 'dead letter')}" if letters else ""
    if problems:
        verb = "needs" if problems == 1 else "need"
        return f"{format_count(problems, 'check')} {verb} a person{parked}"
    notes = sum(each.status == "note" for each in findings)
    if notes:
        return f"Nothing needs a person; {format_count(notes, 'note')}{parked}"
    return f"All {len(findings)} checks pass{parked}"


def _groups(findings: Sequence[Found]) -> Iterator[tuple[str, tuple[Check, ...]]]:
    found: dict[str, list[Found]] = {"Services": [], "Log, archive and floor": [], "Bus": []}
    for each in findings:
        found[_group_of(each.check)].append(each)
    for title, checks in found.items():
        if checks:
            checks.sort(key=lambda each: _RANKS.index(each.status))
            yield title, tuple(map(_check, checks))


def _group_of(check: str) -> str:
    if check.startswith(SERVICE):
        return "Services"
    return "Log, archive and floor" if check.startswith(STORED) else "Bus"


def _check(found: Found) -> Check:
    name = found.check.removeprefix(SERVICE)
    return Check(name, _WORDS[found.status], found.text, found.fix)
