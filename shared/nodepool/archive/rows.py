"""A message of the log as a row of a segment."""

from datetime import datetime
from typing import Final, NamedTuple

from pydantic_core import from_json

from nodepool.contract.log import Entry
from nodepool.contract.subjects import address_of


class Row(NamedTuple):
    """The columns of a segment, in order.

    type: the name of the class of a command or event; None for other messages, such as commits.
    service: who says the event, commits, or could not process the message; None for commands.
    org, cluster, name: the identity in the subject; None for other messages.
    id, correlationid, causationid: of the CloudEvent; None if the content has none.
    """

    position: int
    time: datetime
    subject: str
    type: str | None
    service: str | None
    org: str | None
    cluster: str | None
    name: str | None
    id: str | None
    correlationid: str | None
    causationid: str | None
    headers: list[tuple[str, str]]
    content: bytes


OVERHEAD: Final = 100
"""What a row counts beside its texts, in bytes, so that empty messages fill a segment too."""


def row_of(entry: Entry) -> Row:
    """Return the row of a message; any content has one, because the log takes any."""
    position, time, subject, content, headers = entry
    address = address_of(subject)
    if address is None:
        kind, org, cluster, name = None, None, None, None
        service: str | None = subject.rpartition(".")[2]
    else:
        kind, (org, cluster, name) = address.name, address.path
        service = address.service or None
    id, correlation, cause = _ids(content)
    return Row(
        position,
        time,
        subject,
        kind,
        service,
        org,
        cluster,
        name,
        id,
        correlation,
        cause,
        list(headers.items()),
        content,
    )


def size_of(entry: Entry) -> int:
    """Return how many bytes a message counts in a segment, before compression."""
    headers = sum(len(name) + len(text) for name, text in entry.headers.items())
    return len(entry.content) + len(entry.subject) + headers + OVERHEAD


def _ids(content: bytes) -> tuple[str | None, str | None, str | None]:
    try:
        event = from_json(content)
    except ValueError:
        return None, None, None
    if not isinstance(event, dict):
        return None, None, None
    return (
        _text(event.get("id")),
        _text(event.get("correlationid")),
        _text(event.get("causationid")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
