"""The users who can sign in: those whose credentials are in the folder of keys."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodepool.client.holder import holder_of
from nodepool.contract.roles import Role
from nodepool.nats.wire.access import Access

PEOPLE: Final[tuple[Role, ...]] = ("viewer", "editor", "owner")
"""The roles of people; an agent has no use for pages."""
USERS_MAX: Final = 1_000
"""The most users who can sign in."""
PATTERN: Final = "*/*.nk"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of an organisation, and where the seed of its key is."""

    org: str
    user: str
    role: Role
    key_file: str

    @property
    def name(self) -> str:
        """The name of the user, as the audit has it."""
        return f"{self.org}/{self.user}"

    def access(self, trusted: str) -> Access:
        """Return what a connection of the user shows; `trusted` is a file with certificates."""
        return Access(ca_file=trusted, nkey_file=self.key_file)


def list_identities(keys: Path) -> tuple[Identity, ...]:
    """Return each person in a folder of keys, in the order of names; none if there is no folder."""
    found = list[Identity]()
    for path in sorted(keys.glob(PATTERN))[:USERS_MAX]:
        holder = holder_of(Access(nkey_file=str(path)))
        role = next((role for role in PEOPLE if holder is not None and holder.role == role), None)
        if holder is not None and role is not None:
            found.append(Identity(holder.org, holder.user, role, str(path)))
    return tuple(found)
