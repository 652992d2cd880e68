"""Moments as texts; apart from the models, so that verbs that only read need not load those."""

from datetime import UTC, datetime
from functools import lru_cache

MOMENTS_MAX = 4_096
"""The size of the cache in formatted times; a document repeats the same few times."""


@lru_cache(MOMENTS_MAX)
def rfc3339(moment: datetime) -> str:
    """Return a time as Kubernetes writes it: RFC 3339, in UTC and whole seconds."""
    # `isoformat` takes half the time of `strftime`.
    return f"{moment.astimezone(UTC).isoformat(timespec='seconds')[:19]}Z"
