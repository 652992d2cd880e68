"""Durations, parsed like in Go and printed like in kubectl.

For the syntax, see https://pkg.go.dev/time#ParseDuration.
"""

import re
from datetime import UTC, datetime, timedelta

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def duration_s(text: str) -> float:
    """Return the seconds of a Go duration such as `90s`, `1m30s` or `0`.

    Raises ValueError for any other text.
    """
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write it as 60s, 5m or 1h30m")
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the moment that a date, an RFC 3339 time, or a duration before now names, as `2h`.

    A duration may have a minus sign. Raises ValueError for any other text.
    """
    found = moment(text)
    if found is not None:
        return found
    try:
        return now - timedelta(seconds=duration_s(text.removeprefix("-")))
    except (ValueError, OverflowError):
        example = "write 2026-11-28, 2026-11-28T14:03Z, or 2h for two hours ago"
        raise ValueError(f"{text!r} is no time; {example}") from None


def human(seconds: float) -> str:
    """Return a duration as in kubectl's AGE column: two units if short, one unit if long."""
    if int(seconds) < -1:
        return "<invalid>"
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, unit: str, small: int, lesser: str) -> str:
    return f"{large}{unit}{small}{lesser}" if small else f"{large}{unit}"


def age(since: str, now: datetime) -> str:
    """Return the time since an RFC 3339 timestamp, for people; `<unknown>` for any other text."""
    begin = moment(since)
    return "<unknown>" if begin is None else human((now - begin).total_seconds())


def moment(text: str) -> datetime | None:
    """Return the moment that an RFC 3339 timestamp names; the default zone is UTC.

    Returns None for any other text.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
