"""Who sends through the front door: what the server says about a sender, and what is stored of it.

The server adds the header `Nats-Request-Info` to a message that reaches the gateway through an
import with `share: true`. The header names the account, the user and the host of the sender, see
https://docs.nats.io/running-a-nats-service/configuration/securing_nats/accounts. The members file
says which person or program a user of an account is, and which role it has.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from nodepool.contract.keys import FLEET
from nodepool.contract.roles import ROLES, Role
from nodepool.contract.services import SERVICES

SENDERS_MAX: Final = 4_096
"""How many values of the header are remembered; it is the same for most messages of a client."""
PART_MAX: Final = 256
"""The most characters of an account, a user, a name or a host."""
WITHHELD: Final = "-"
"""The actor and the correlation id of an event about an organisation that follows from a command of
another one."""
_SEPARATOR: Final = ";"


class Sender(NamedTuple):
    """The sender of a message, as the server names it.

    account: the account of the user, which has the name of the organisation.
    user: the name of the user, or its public key.
    host: the address of the client.
    """

    account: str
    user: str
    host: str


@dataclass(frozen=True, slots=True)
class Member:
    """A user of an organisation.

    account: the account of the organisation.
    user: how the server names the user: its public key, or its name if it has a password.
    name: the name of the user in the organisation.
    cluster: the cluster of an agent; empty for people.
    """

    account: str
    user: str
    name: str
    role: Role
    cluster: str = ""


Members = Mapping[tuple[str, str], Member]
"""The members by account and user."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The sender of a command, as it is stored with the command.

    host: the address of the client.
    cluster: the cluster of an agent; empty for people.
    """

    org: str
    user: str
    role: Role
    host: str
    cluster: str = ""

    @property
    def text(self) -> str:
        """The value of the CloudEvent attribute `actor`: `acme;alice;editor;10.0.0.7`."""
        return _SEPARATOR.join((self.org, self.user, self.role, self.host))


def actor_in(text: str) -> Actor | None:
    """Return the actor of a CloudEvent attribute `actor`; None for any other text."""
    match text.split(_SEPARATOR):
        case [org, user, role, host] if role in ROLES:
            return Actor(org, user, role, host)
    return None


def withhold_actor(actor: str, org: str) -> str:
    """Return the actor to name in an event about an organisation, which must not see others.

    Events about machines name the actor: no organisation reads them, and events about the
    organisation of the actor follow from them. A service is named everywhere.
    """
    is_own = actor.startswith(f"{org}{_SEPARATOR}")
    return actor if org == FLEET or is_own or actor in SERVICES else WITHHELD


def is_foreign(actor: str, org: str) -> bool:
    """Return whether what an actor has chosen must not be in an event about an organisation."""
    known = actor_in(actor)
    return org != FLEET and (actor == WITHHELD or (known is not None and known.org != org))


@lru_cache(SENDERS_MAX)
def sender_in(request_info: str | None) -> Sender | None:
    """Return the sender that the server names in its header; None if the header is unusable."""
    try:
        info = json.loads(request_info or "")
    except ValueError:
        return None
    if not isinstance(info, dict):
        return None
    parts = [info.get(name) for name in ("acc", "user", "host")]
    texts = [part for part in parts if isinstance(part, str) and _is_plain(part)]
    return Sender(*texts) if len(texts) == len(parts) else None


def actor_of(sender: Sender, members: Members) -> Actor | None:
    """Return the member that a sender is, with its address; None if the sender is no member."""
    member = members.get((sender.account, sender.user))
    if member is None:
        return None
    return Actor(member.account, member.name, member.role, sender.host, member.cluster)


def members_text(members: Iterable[Member]) -> str:
    """Return the content of the members file."""
    return json.dumps({"members": [asdict(member) for member in members]}, indent=1) + "\n"


def members_in(text: str) -> Members:
    """Return the members in the content of a members file; raise ValueError for other content."""
    document = json.loads(text)
    if not isinstance(document, dict) or not isinstance(document.get("members"), list):
        raise ValueError("it has no list of members")
    members = [_member(each) for each in document["members"]]
    known = {(member.account, member.user): member for member in members}
    if len(known) < len(members):
        raise ValueError("a user of an account occurs twice")
    return known


def _member(value: object) -> Member:
    if not isinstance(value, dict):
        raise ValueError("a member is no object")
    texts = {name: value.get(name, "") for name in ("account", "user", "name", "role", "cluster")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("a field of a member is no text")
    member = Member(**texts)
    if member.role not in ROLES or member.role == "operator":
        raise ValueError(f"{member.role!r} is no role of a member")
    if not all(map(_is_plain, (member.account, member.user, member.name))):
        raise ValueError("a member has no account, no user or no name")
    if (member.role == "agent") != bool(member.cluster):
        raise ValueError(f"{member.name} has a cluster if and only if it is an agent")
    return member


def _is_plain(text: str) -> bool:
    """Return whether a text can be part of the attribute `actor`."""
    return 0 < len(text) <= PART_MAX and text.isprintable() and _SEPARATOR not in text
