"""The users who can sign in: each has credentials in the folder of keys."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodepool.client.holder import holder_of
from nodepool.contract.roles import Role
from nodepool.nats.wire.access import Access

PEOPLE: Final[tuple[Role, ...]] = ("viewer", "editor", "owner")
"""The roles of people in an organisation; an agent has no use for pages."""
OPERATOR: Final = "operator"
"""The user of the platform who can sign in, and its role: it belongs to no organisation."""
USERS_MAX: Final = 1_000
"""The most users who can sign in."""
PATTERN: Final = "*/*.nk"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, and where the seed of its key is; `org` is empty for the operator."""

    org: str
    user: str
    role: Role
    key_file: str

    @property
    def name(self) -> str:
        """The name of the user, as the audit has it."""
        return f"{self.org}/{self.user}" if self.org else self.user

    @property
    def home(self) -> str:
        """The page on which the user begins."""
        return "/nodepools" if self.org else "/system"

    def access(self, trusted: str) -> Access:
        """Return the credentials of the user; `trusted` is a file with certificates."""
        return Access(ca_file=trusted, nkey_file=self.key_file)


def list_identities(keys: Path) -> tuple[Identity, ...]:
    """Return each person in a folder of keys, and the operator last; none without a folder."""
    found = list[Identity]()
    for path in sorted(keys.glob(PATTERN))[:USERS_MAX]:
        holder = holder_of(Access(nkey_file=str(path)))
        role = next((role for role in PEOPLE if holder is not None and holder.role == role), None)
        if holder is not None and role is not None:
            found.append(Identity(holder.org, holder.user, role, str(path)))
    operator = keys / f"{OPERATOR}.nk"
    if operator.is_file():
        found.append(Identity("", OPERATOR, OPERATOR, str(operator)))
    return tuple(found)
