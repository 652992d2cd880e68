"""Moments as texts; apart from the models, so that verbs that only read need not load those."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Return a time as Kubernetes writes it: RFC 3339, in UTC and whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
