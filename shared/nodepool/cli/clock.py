"""The moment that a command shows: the present, unless it looks at the past.

Ages, and how far back events are shown, are counted from there.
"""

from contextvars import ContextVar
from datetime import UTC, datetime

_SHOWN: ContextVar[datetime | None] = ContextVar("shown", default=None)


def show_moment(moment: datetime | None) -> None:
    """Make a moment the one that this command shows; the present for None."""
    _SHOWN.set(moment)


def shown_now() -> datetime:
    """Return the moment that this command shows."""
    return _SHOWN.get() or datetime.now(UTC)
