"""Whose credentials a client uses, which a comment in their file says."""

import re
from typing import Final, NamedTuple

from nodepool.nats.wire.access import Access
from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import content_of

_COMMENT: Final = re.compile(
    rb"^#[ \t]*([a-z0-9][a-z0-9-]*)/([A-Za-z0-9][A-Za-z0-9_.-]*)(?:,[ \t]*([a-z]+))?[ \t]*\r?$",
    re.MULTILINE,
)
_TENANTS: Final = ("viewer", "editor", "owner", "agent")
"""The roles in an organisation; these users have no JetStream and work through the gateway."""


class Holder(NamedTuple):
    """The user of some credentials.

    org: the organisation of the user; `platform` for users of the platform.
    role: the role in the organisation; empty for users of the platform.
    """

    org: str
    user: str
    role: str = ""

    @property
    def is_tenant(self) -> bool:
        """Return whether the user belongs to an organisation, and not to the platform."""
        return self.role in _TENANTS

    def __str__(self) -> str:
        return f"{self.org}/{self.user}" + (f" ({self.role})" if self.role else "")


def holder_of(access: Access) -> Holder | None:
    """Return whose credentials these are, by a comment such as `# acme/alice, editor`.

    Returns None without such a comment, and if the file cannot be read: connecting tells why.
    """
    path = access.nkey_file or access.creds_file
    try:
        match = _COMMENT.search(content_of("nkey_file", path)) if path else None
    except AccessError:
        return None
    return Holder(*(part.decode() for part in match.groups(b""))) if match is not None else None
