"""Durations as people read them."""

from datetime import UTC, datetime
from typing import Final

from nodepool.explanation.unanswered import ANSWERS_WITHIN

MINUTE, HOUR, DAY = 60, 3_600, 86_400
_STEPS: Final = ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s"))


def format_duration(seconds: float) -> str:
    """Return a duration in at most two units: `26 s`, `2 min 26 s`, `3 h 5 min`, `4 d`."""
    whole = max(0, int(seconds))
    for size, unit, smaller, name in _STEPS:
        if whole >= size:
            rest = whole % size // smaller
            is_whole = rest == 0 or whole >= 2 * DAY
            return (
                f"{whole // size} {unit}" if is_whole else f"{whole // size} {unit} {rest} {name}"
            )
    return f"{whole} s"


def format_countdown(seconds: float) -> str:
    """Return the time left as `4:34`, or `1:04:34` from an hour on."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // HOUR, whole % HOUR // MINUTE, whole % MINUTE
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_due(seconds: float, prefix: str = "") -> str:
    """Return the time left after a prefix, or by how much a deadline is overdue.

    A deadline is overdue as soon as the service that should keep it counts as silent.
    `console.js` does the same while a page is shown.
    """
    if -seconds > ANSWERS_WITHIN.total_seconds():
        return f"overdue by {format_duration(-seconds)}"
    return f"{prefix}{format_countdown(seconds)}"


def parse_moment(text: object) -> datetime | None:
    """Return the moment in a text of RFC 3339; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
