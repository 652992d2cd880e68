"""Whose credentials a client uses, which a comment in their file says."""

import re
from typing import Final, NamedTuple

from nodepool.nats.wire.access import Access
from nodepool.nats.wire.errors import AccessError

_COMMENT: Final = re.compile(r"([a-z0-9][a-z0-9-]*)/([A-Za-z0-9][\w.-]*), *([a-z]+)\b.*", re.ASCII)
_TENANTS: Final = ("viewer", "editor", "owner", "agent")
"""The roles in an organisation; these users have no JetStream and work through the gateway."""


class Holder(NamedTuple):
    """A user of an organisation, and the role that the user has there."""

    org: str
    user: str
    role: str

    def __str__(self) -> str:
        return f"{self.org}/{self.user} ({self.role})"


def holder_of(access: Access) -> Holder | None:
    """Return the user whose credentials these are, by a comment such as `# acme/alice, editor`.

    Returns None for users of the platform, without such a comment, and if the file cannot be read:
    connecting tells why.
    """
    try:
        comments = access.comments()
    except AccessError:
        return None
    for comment in comments:
        match = _COMMENT.fullmatch(comment)
        if match is not None and match[3] in _TENANTS:
            return Holder(match[1], match[2], match[3])
    return None
