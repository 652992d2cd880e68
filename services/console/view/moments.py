"""Moments of the past that an address names, and the steps from one to others."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from console.view.times import parse_moment
from nodepool.contract.moments import rfc3339

STEPS: Final = (
    ("1 h back", timedelta(hours=-1)),
    ("5 min back", timedelta(minutes=-5)),
    ("5 min on", timedelta(minutes=5)),
    ("1 h on", timedelta(hours=1)),
)
DIGITS_MAX: Final = 15
"""The most digits of a position of the log."""
At = int | datetime


@dataclass(frozen=True, slots=True)
class Shown:
    """A moment that a page shows.

    at: as addresses name it: a position of the log, or a time.
    position, time: which moment that is.
    """

    at: str
    position: int
    time: datetime

    def steps(self, now: datetime) -> Sequence[tuple[str, str]]:
        """Return titles and times of the moments around this one; a future one is left out."""
        times = ((title, self.time + by) for title, by in STEPS)
        return [(title, rfc3339(time)) for title, time in times if time < now]

    @property
    def field(self) -> str:
        """The time as the field of a form has it, in UTC."""
        return f"{self.time.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def read_at(values: Sequence[str]) -> str:
    """Return the last value of `at` that is not empty; empty for the present."""
    return next((value.strip() for value in reversed(values) if value.strip()), "")


def parse_at(text: str) -> At | None:
    """Return the position or the time in a text, in UTC unless it says; None for other texts."""
    position = parse_position(text)
    return parse_moment(text) if position is None else position


def parse_position(text: str) -> int | None:
    """Return the position of the log that a text names; None for other texts."""
    is_position = text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
    return int(text) if is_position else None
