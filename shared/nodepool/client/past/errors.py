"""What cannot be done with the past."""

from nodepool.client.errors import ClientError, Refused


class NoMoment(ClientError):
    """The log has no such moment, or it cannot be known any more; the text has nothing secret."""


def refuse(what: str) -> Refused:
    """Return the error for what cannot be done with the past: a verb and its object."""
    text = f"nobody can {what} as of a past moment: only objects and events are shown of it"
    return Refused("", "Forbidden", text)
