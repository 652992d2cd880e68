"""Every identity of an installation, as one document: public keys and roles, and never a secret.

A user with a password has its hash there. Passwords are random: nobody finds one from that.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from nodepool.auth.accounts import (
    PLATFORM_USERS,
    SYSTEM_USER,
    Member,
    Organisation,
    Proof,
    User,
    configuration,
    known_as,
)
from nodepool.contract.actors import Member as KnownMember
from nodepool.contract.actors import members_text
from nodepool.contract.roles import ROLES, Role
from nodepool.service import AnyService

_T = TypeVar("_T")
VERSION: Final = 1
"""The version of the form of the document."""


class AuthError(Exception):
    """A change of identities that is not possible; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Users:
    """The users of the platform, of the system account, and of each organisation."""

    platform: tuple[User, ...] = ()
    system: tuple[User, ...] = ()
    organisations: tuple[Organisation, ...] = ()

    def of_platform(self, name: str) -> User | None:
        """Return a user of the platform or of the system account; None if there is no such user."""
        return next((user for user in (*self.platform, *self.system) if user.name == name), None)

    def organisation(self, name: str) -> Organisation:
        """Return an organisation; raise AuthError if there is no such organisation."""
        for organisation in self.organisations:
            if organisation.name == name:
                return organisation
        known = ", ".join(each.name for each in self.organisations) or "none yet"
        text = f"there is no organisation {name} (known: {known})"
        raise AuthError(f"{text}; add it with 'nodepool auth add-organisation'")

    def member(self, org: str, name: str) -> Member:
        """Return a user of an organisation; raise AuthError if there is no such user."""
        members = self.organisation(org).members
        for member in members:
            if member.user.name == name:
                return member
        known = ", ".join(each.user.name for each in members) or "none yet"
        raise AuthError(f"{org} has no user {name} (known: {known})")

    def owner_of(self, key: str) -> tuple[str, User | Member] | None:
        """Return the user with a public key and its organisation, "" for the platform; or None."""
        for user in (*self.platform, *self.system):
            if user.proof.key == key:
                return "", user
        for org in self.organisations:
            for member in org.members:
                if member.user.proof.key == key:
                    return org.name, member
        return None

    def with_platform_key(self, name: str, key: str) -> "Users":
        """Return the users in which a user of the platform or the system has a key."""
        user = User(name, Proof(key))
        if name == SYSTEM_USER:
            return replace(self, system=(user,))
        others = [each for each in self.platform if each.name != name]
        users = {each.name: each for each in (*others, user)}
        return replace(
            self, platform=tuple(users[each] for each in PLATFORM_USERS if each in users)
        )

    def with_organisation(self, name: str) -> "Users":
        """Return the users with another organisation; raise AuthError if its name cannot be so."""
        if any(each.name == name for each in self.organisations):
            raise AuthError(f"there is an organisation {name} already")
        added = _checked(lambda: Organisation(name))
        organisations = sorted((*self.organisations, added), key=lambda each: each.name)
        return replace(self, organisations=tuple(organisations))

    def with_member(self, org: str, member: Member) -> "Users":
        """Return the users with another one in an organisation; raise AuthError if that fails."""
        organisation, name = self.organisation(org), member.user.name
        if any(each.user.name == name for each in organisation.members):
            text = f"{org} has a user {name} already; choose another name"
            raise AuthError(
                f"{text}, or give it a new key with 'nodepool auth rotate {org} {name}'"
            )
        return self._with_members(organisation, (*organisation.members, member))

    def with_proof(self, org: str, name: str, proof: Proof) -> "Users":
        """Return the users in which a user of an organisation has a proof; or raise AuthError."""
        changed, organisation = self.member(org, name), self.organisation(org)
        new = replace(changed, user=User(name, proof))
        members = [new if each is changed else each for each in organisation.members]
        return self._with_members(organisation, members)

    def without_member(self, org: str, name: str) -> "Users":
        """Return the users without one of an organisation; raise AuthError if unknown."""
        gone, organisation = self.member(org, name), self.organisation(org)
        members = [each for each in organisation.members if each is not gone]
        return self._with_members(organisation, members)

    def accounts_text(self, services: Sequence[AnyService]) -> str:
        """Return the accounts, as the configuration of a server includes them."""
        return configuration(services, self.platform, self.organisations, self.system)

    def members_text(self) -> str:
        """Return the content of the members file, which the gateway reads."""
        return members_text(
            KnownMember(
                org.name, known_as(org.name, each.user), each.user.name, each.role, each.cluster
            )
            for org in self.organisations
            for each in org.members
        )

    def _with_members(self, organisation: Organisation, members: Sequence[Member]) -> "Users":
        new = Organisation(organisation.name, tuple(sorted(members, key=lambda m: m.user.name)))
        organisations = [new if each is organisation else each for each in self.organisations]
        return replace(self, organisations=tuple(organisations))


def new_member(name: str, proof: Proof, role: str, cluster: str = "") -> Member:
    """Return a user of an organisation; raise AuthError for a bad name, role or cluster."""
    roles = [each for each in ROLES if each != "operator"]
    if role not in roles:
        raise AuthError(f"{role!r} is no role; choose one of {', '.join(roles)}")
    known = cast("Role", role)  # Which it is, was just checked; mypy sees no `in`.
    return _checked(lambda: Member(User(name, proof), known, cluster))


def users_text(users: Users) -> str:
    """Return the document."""
    document = {
        "version": VERSION,
        "platform": {user.name: _proof_fields(user) for user in users.platform},
        "system": {user.name: _proof_fields(user) for user in users.system},
        "organisations": {
            org.name: {
                each.user.name: {
                    **_proof_fields(each.user),
                    "role": each.role,
                    **({"cluster": each.cluster} if each.cluster else {}),
                }
                for each in org.members
            }
            for org in users.organisations
        },
    }
    return json.dumps(document, indent=1) + "\n"


def users_in(text: str) -> Users:
    """Return the users in a document; raise ValueError, which says the fault, for other content."""
    document = json.loads(text, object_pairs_hook=_unique)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"it is no document of version {VERSION}")
    unknown = document.keys() - {"version", "platform", "system", "organisations"}
    if unknown:
        raise ValueError(f"{min(unknown)} is no part of it")
    users = Users(
        tuple(_users(document, "platform", PLATFORM_USERS)),
        tuple(_users(document, "system", (SYSTEM_USER,))),
        tuple(
            Organisation(org, tuple(_members(org, members)))
            for org, members in _part(document, "organisations").items()
        ),
    )
    everyone = (*users.platform, *users.system)
    everyone += tuple(each.user for org in users.organisations for each in org.members)
    keys = [user.proof.key for user in everyone if user.proof.key]
    if len(set(keys)) < len(keys):
        raise ValueError("two users have the same key")
    return users


def _users(document: Mapping[str, Any], part: str, names: Sequence[str]) -> Iterator[User]:
    for name, fields in _part(document, part).items():
        if name not in names:
            raise ValueError(f"{part}.{name}: there is no such user")
        yield User(name, _proof(f"{part}.{name}", fields))


def _members(org: str, value: object) -> Iterator[Member]:
    if not isinstance(value, dict):
        raise ValueError(f"organisations.{org} is no object")
    for name, fields in value.items():
        where = f"organisations.{org}.{name}"
        proof = _proof(where, fields, "role", "cluster")
        role, cluster = fields.get("role"), fields.get("cluster", "")
        if role not in ROLES or not isinstance(cluster, str):
            raise ValueError(f"{where} has no role or no valid cluster")
        yield Member(User(name, proof), role, cluster)


def _proof(where: str, fields: object, *others: str) -> Proof:
    if not isinstance(fields, dict) or fields.keys() - {"key", "password", *others}:
        raise ValueError(f"{where} is no object of a user")
    proof = [fields.get(name, "") for name in ("key", "password")]
    if not all(isinstance(each, str) for each in proof):
        raise ValueError(f"{where}: key and password must be texts")
    return Proof(*proof)


def _part(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = document.get(name, {})
    if not isinstance(part, dict):
        raise ValueError(f"{name} is no object")
    return part


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return fields


def _proof_fields(user: User) -> dict[str, str]:
    proof = user.proof
    return {"key": proof.key} if proof.key else {"password": proof.password}


def _checked(make: Callable[[], _T]) -> _T:
    try:
        return make()
    except ValueError as error:
        raise AuthError(str(error)) from None
