"""Moments as texts; apart from the models, so that verbs that only read need not load those."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Return a time as Kubernetes writes it: RFC 3339, in UTC and whole seconds."""
    # `isoformat` takes half the time of `strftime`, and documents have many moments.
    return f"{moment.astimezone(UTC).isoformat(timespec='seconds')[:19]}Z"
