"""What an identity may do, as `nodepool auth can-i` answers: from its rights and its role."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import click

from nodepool.auth.accounts import (
    OPERATOR,
    SYSTEM_USER,
    Member,
    Proof,
    User,
    platform_rights,
)
from nodepool.auth.folder import AuthFolder, load_services
from nodepool.auth.rights import Rights
from nodepool.auth.users import AuthError, Users, new_member
from nodepool.cli.errors import CliError
from nodepool.cli.names import KINDS, PREEMPTION, Kind
from nodepool.contract.messages import Command
from nodepool.contract.roles import ROLES, SENDERS, Role
from nodepool.contract.suggest import did_you_mean
from nodepool.nats.wire.access import Access

READS: Final = ("get", "list", "watch", "describe", "events", "explain", "wait", "rollout")
SUBJECTS: Final = ("publish", "subscribe")
_APPLY: Final = ("apply", "create", "edit", "patch", "replace", "label", "annotate")
ALIASES: Final = {
    **{f"{verb}nodepool": "ApplyNodePool" for verb in _APPLY},
    "createcluster": "RegisterCluster",
    "acknode": "AcknowledgePreemption",
    "ackpreemption": "AcknowledgePreemption",
}
"""Other names of commands, as verb and type."""
NO_KEY: Final = Proof(f"U{'A' * 55}")
"""Stands for the key of a user where only the role and the names matter."""
COMMANDS: Final = {command.__name__: command for command in SENDERS}


@dataclass(frozen=True, slots=True)
class Asker:
    """Whom a question is about.

    org: the organisation of a user; "" for the platform.
    role: None for a user of the platform that is not the operator.
    """

    org: str
    name: str
    role: Role | None
    cluster: str = ""

    @property
    def title(self) -> str:
        """The user as a person writes it: `acme/alice`."""
        return f"{self.org}/{self.name}" if self.org else self.name

    def rights(self) -> Rights:
        """Return what the user may publish and subscribe to in its account."""
        if self.name == SYSTEM_USER and not self.org:
            return Rights((">",), (">",))
        if not self.org:
            return platform_rights(load_services())[self.name]
        assert self.role is not None
        return new_member(self.name, NO_KEY, self.role, self.cluster).rights(self.org)


def named_asker(folder: AuthFolder, user: str) -> Asker:
    """Return the user with a name as `acme/alice` or `operator`; raise AuthError if unknown."""
    org, slash, name = user.rpartition("/")
    users = folder.users()
    if slash:
        return _asker(org, users.member(org, name))
    found = users.of_platform(name)
    if found is None:
        raise AuthError(f"the platform has no user {name}; name others as ORG/NAME")
    return _asker("", found)


def asker_in_use(folder: AuthFolder, access: Access) -> Asker:
    """Return the user whose credentials are in use.

    The folder knows every key. Of a password, and where there is no folder, a comment in the
    credentials says whose they are. Raises CliError if there are no credentials of a known user.
    """
    if not (access.nkey_file or access.password_file):
        text = "no credentials are in use: set NODEPOOL_NKEY_FILE, or name a user with --as"
        raise CliError(text)
    users = folder.users() if folder.users_file.exists() else Users()
    owner = users.owner_of(access.key_pair().public_key) if access.nkey_file else None
    if owner is not None:
        return _asker(*owner)
    for comment in access.comments():
        if (asker := _described(comment)) is not None:
            return asker if access.nkey_file or users == Users() else _known(users, asker)
    text = f"{folder.path} does not know the key in {access.nkey_file}"
    if not access.nkey_file:
        text = f"{access.password_file} has no comment that says whose password it is"
    raise CliError(f"{text}; name a user with --as, or the folder with --dir")


def _known(users: Users, asker: Asker) -> Asker:
    """Return the user with the role that the folder gives to it; raise AuthError if unknown."""
    return _asker(asker.org, users.member(asker.org, asker.name))


def _asker(org: str, user: User | Member) -> Asker:
    if isinstance(user, Member):
        return Asker(org, user.user.name, user.role, user.cluster)
    return Asker("", user.name, "operator" if user.name == OPERATOR else None)


def _described(comment: str) -> Asker | None:
    """Return whom a comment in credentials names, as `acme/alice, editor`; None for another."""
    who, _, title = comment.partition(", ")
    org, _, name = who.rpartition("/")
    role, _, cluster = title.partition(" of ")
    if org and role in ROLES and role != "operator" and (role == "agent") == bool(cluster):
        return Asker(org, name, cast("Role", role), cluster)
    return Asker("", OPERATOR, "operator") if comment == f"{OPERATOR}, platform" else None


def refusal(asker: Asker, verb: str, thing: str) -> str | None:
    """Return why somebody may not do something; None if they may.

    Raises a usage error for an unknown verb or object.
    """
    if verb in SUBJECTS:
        rights = asker.rights()
        may = rights.may_publish if verb == "publish" else rights.may_subscribe
        return None if may(thing) else f"{asker.title} may not {verb} there"
    kind = _kind(thing.partition("/")[0])
    if verb in READS and kind is not None:
        is_shared = kind.scope == "cell" and kind.stored_in is not None
        roles = ("operator",) if is_shared else tuple(ROLES)
        return None if asker.role in roles else f"reading {kind.plural} is for {_listed(roles)}"
    command = _command(verb, kind.singular if kind is not None else thing)
    roles = tuple(role for role in ROLES if role in SENDERS[command])
    if asker.role not in roles:
        return f"{command.__name__} is for {_listed(roles)}"
    return None


def _command(verb: str, thing: str) -> type[Command]:
    known = {name.lower(): name for name in COMMANDS} | ALIASES
    words = thing.lower() if verb == "send" else f"{verb}{thing}".lower()
    for spelling in (words, f"{words}s", words.removesuffix("s")):
        if spelling in known:
            return COMMANDS[known[spelling]]
    close = did_you_mean(words, COMMANDS)
    text = f"no command is '{verb} {thing}'{close}; write a verb and a type, as 'scale nodepool'"
    raise click.UsageError(f"{text}, 'send COMMAND', or 'publish SUBJECT'")


def _kind(word: str) -> Kind | None:
    return next((kind for kind in (*KINDS, PREEMPTION) if word.lower() in kind.spellings), None)


def _listed(roles: Sequence[str]) -> str:
    return ", ".join(roles)
