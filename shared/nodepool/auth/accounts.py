"""The accounts and users of a nats-server as the text of its configuration.

JetStream is in the account of the platform alone. The services and the gateway share an account
without it, which imports what they say and read: the server sends what is read to any subject that
the reader names, without its rights, but only in the account of the reader. An organisation has an
account too, and imports what leads to the front door and its own events; nothing else connects two
accounts. See https://docs.nats.io/running-a-nats-service/configuration/securing_nats/accounts.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from nodepool.auth.rights import (
    NEXT,
    SERVED,
    Rights,
    agent_rights,
    archiver_rights,
    feed_rights,
    gateway_rights,
    imports,
    operator_rights,
    provisioner_rights,
    service_rights,
    tenant_rights,
)
from nodepool.contract import grammar
from nodepool.contract.door import QUERIES, door_of
from nodepool.contract.roles import Role
from nodepool.contract.services import EVERY, FEED
from nodepool.service import AnyService

PLATFORM: Final = "PLATFORM"
SPEAKERS: Final = "SERVICES"
SYSTEM: Final = "SYS"
"""The names of accounts that no organisation has; its account has the name of the organisation."""
PROVISIONER: Final = "provisioner"
GATEWAY: Final = "gateway"
ARCHIVER: Final = "archiver"
OPERATOR: Final = "operator"
PLATFORM_USERS: Final = (*EVERY, FEED, PROVISIONER, GATEWAY, ARCHIVER, OPERATOR)
"""The users of the platform: each service, the reader of a process of services, and the others."""
OWNERS: Final = (PROVISIONER, OPERATOR)
"""The users of the platform whose account has JetStream."""
SYSTEM_USER: Final = "system"
ANSWER_S: Final = 60
"""For how long whoever may answer may do so, in seconds."""
LIMITS: Final = {"max_connections": 128, "max_subscriptions": 64, "max_payload": 640 << 10}
"""What the users of an organisation may use: connections of all of them together, subscriptions of
each connection, and bytes of each message. An observation of an agent has up to 512 KiB."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_KEY: Final = re.compile(r"U[A-Z2-7]{55}")
_HASH: Final = re.compile(r"\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}")


@dataclass(frozen=True, slots=True)
class Proof:
    """How the server knows a user: by the public key of an nkey, or by a name and a password.

    key: the public key, which begins with `U`; empty for a user with a password.
    password: the bcrypt hash of the password; empty for a user with a key.
    """

    key: str = ""
    password: str = ""

    def __post_init__(self) -> None:
        if bool(self.key) == bool(self.password):
            raise ValueError("a user has a key or a password, and not both")
        if self.key and not _KEY.fullmatch(self.key):
            raise ValueError(f"{self.key} is not the public key of a user")
        if self.password and not _HASH.fullmatch(self.password):
            raise ValueError("the password of a user is not a bcrypt hash")


@dataclass(frozen=True, slots=True)
class User:
    """A user of an account.

    name: the name in the account; replies arrive at the inbox of this name.
    """

    name: str
    proof: Proof

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not the name of a user")


@dataclass(frozen=True, slots=True)
class Member:
    """A user of an organisation.

    role: viewer, editor or owner; or agent, for the agent of a cluster.
    cluster: the cluster of an agent; empty for people.
    """

    user: User
    role: Role
    cluster: str = ""

    def __post_init__(self) -> None:
        if self.role == "operator":
            raise ValueError(f"{self.user.name} cannot be an operator in an organisation")
        if (self.role == "agent") != bool(self.cluster):
            raise ValueError(f"{self.user.name} has a cluster if and only if it is an agent")
        if self.cluster and (fault := grammar.dns1123_subdomain(self.cluster)) is not None:
            raise ValueError(f"cluster of {self.user.name}: {fault}")

    @property
    def title(self) -> str:
        """What the user is, as a person reads it: `editor`, or `agent of prod`."""
        return f"{self.role} of {self.cluster}" if self.cluster else self.role

    @property
    def may_change(self) -> bool:
        """Return whether the user may change NodePools."""
        return self.role in ("editor", "owner")

    def rights(self, org: str) -> Rights:
        """Return what the user may do in the account of its organisation."""
        if self.role == "agent":
            return agent_rights(org, self.cluster, self.user.name)
        return tenant_rights(self.role, org, self.user.name)


@dataclass(frozen=True, slots=True)
class Organisation:
    """An organisation and its users."""

    name: str
    members: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        if (fault := grammar.organisation(self.name)) is not None:
            raise ValueError(f"organisation: {fault}")


def known_as(org: str, user: User) -> str:
    """Return how the server names a user: by its key, or by a name that no other account has.

    The server has one list of the names with a password, whatever their accounts. No name of a user
    has a dot, so that `acme.alice` is one user alone. `org` is "" for the platform.
    """
    return user.proof.key or (f"{org}.{user.name}" if org else user.name)


def platform_rights(services: Sequence[AnyService]) -> dict[str, Rights]:
    """Return what each user of the platform may do, by name: each service has a user."""
    return {
        **{service.name: service_rights(service) for service in services},
        FEED: feed_rights(FEED),
        PROVISIONER: provisioner_rights(PROVISIONER),
        GATEWAY: gateway_rights(GATEWAY),
        ARCHIVER: archiver_rights(ARCHIVER),
        OPERATOR: operator_rights(OPERATOR),
    }


def configuration(
    services: Sequence[AnyService],
    platform: Sequence[User],
    organisations: Sequence[Organisation],
    system: Sequence[User] = (),
) -> str:
    """Return the text of the file that the configuration of a server includes.

    platform: the users of the platform, as PLATFORM_USERS names them; each may be left out.
    system: the users of the system account, who may do everything there.

    Raises ValueError for a user of the platform without rights, and for names and keys that occur
    twice.
    """
    rights = platform_rights(services)
    unknown = [user.name for user in platform if user.name not in rights]
    if unknown:
        raise ValueError(f"no user of the platform has the name {', '.join(unknown)}")
    members = [[member.user for member in each.members] for each in organisations]
    _refuse_doubles([each.name for each in organisations], "organisation")
    for users in (platform, system, *members):
        _refuse_doubles([user.name for user in users], "user")
    everyone = [user for users in (platform, system, *members) for user in users]
    _refuse_doubles([user.proof.key for user in everyone if user.proof.key], "key")
    ruled = [(user, rights[user.name]) for user in platform]
    lines = [
        f"system_account: {SYSTEM}",
        "accounts {",
        *_platform([each for each in ruled if each[0].name in OWNERS]),
        *_speakers([each for each in ruled if each[0].name not in OWNERS], organisations),
        f"  {SYSTEM} {{",
        *_users([(user, None) for user in system]),
        "  }",
        *(line for each in organisations for line in _account(each)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _platform(users: Sequence[tuple[User, Rights]]) -> Iterator[str]:
    yield f"  {PLATFORM} {{"
    yield "    jetstream: enabled"
    yield "    exports: ["
    yield from (_export(each, SPEAKERS, many=each == NEXT) for each in imports())
    yield "    ]"
    yield "    imports: ["
    yield _import(SERVED, SPEAKERS)
    yield "    ]"
    yield from _users(users)
    yield "  }"


def _speakers(
    users: Sequence[tuple[User, Rights]], organisations: Sequence[Organisation]
) -> Iterator[str]:
    yield f"  {SPEAKERS} {{"
    yield "    exports: ["
    yield _export(SERVED, PLATFORM, many=True)
    for each in organisations:
        for subject in _doors(each.name):
            yield _export(door_of(subject), each.name, many=subject.startswith(QUERIES))
        accounts = json.dumps([each.name])
        yield f"      {{stream: {json.dumps(_events(each.name))}, accounts: {accounts}}}"
    yield "    ]"
    yield "    imports: ["
    yield from (_import(each, PLATFORM) for each in imports())
    yield "    ]"
    yield from _users(users)
    yield "  }"


def _export(subject: str, account: str, *, many: bool) -> str:
    """Return the line that lets an account ask on a subject; `many` replies come, or one."""
    kind = ", response_type: stream" if many else ""
    return f"      {{service: {json.dumps(subject)}{kind}, accounts: {json.dumps([account])}}}"


def _import(subject: str, account: str) -> str:
    return f"      {{service: {{account: {account}, subject: {json.dumps(subject)}}}}}"


def _account(organisation: Organisation) -> Iterator[str]:
    org = organisation.name
    yield f"  {json.dumps(org)} {{"
    yield f"    limits: {json.dumps(LIMITS)}"
    yield "    imports: ["
    for subject in _doors(org):
        # With "share", the server tells the gateway the account, the user and the host.
        service = f"{{account: {SPEAKERS}, subject: {json.dumps(door_of(subject))}}}"
        yield f"      {{service: {service}, to: {json.dumps(subject)}, share: true}}"
    yield f"      {{stream: {{account: {SPEAKERS}, subject: {json.dumps(_events(org))}}}}}"
    yield "    ]"
    yield from _users([(member.user, member.rights(org)) for member in organisation.members], org)
    yield "  }"


def _users(users: Sequence[tuple[User, Rights | None]], org: str = "") -> Iterator[str]:
    yield "    users: ["
    for user, rights in users:
        yield "      {"
        if user.proof.key:
            yield f"        nkey: {user.proof.key}  # {user.name}"
        else:
            yield f"        user: {json.dumps(known_as(org, user))}"
            yield f"        password: {json.dumps(user.proof.password)}"
        if rights is not None:
            yield "        permissions: {"
            yield f"          publish: {json.dumps(rights.publish)}"
            yield f"          subscribe: {json.dumps(rights.subscribe)}"
            if rights.answers:
                yield f'          allow_responses: {{max: 1, expires: "{ANSWER_S}s"}}'
            yield "        }"
        yield "      }"
    yield "    ]"


def _doors(org: str) -> tuple[str, ...]:
    """Return what an organisation publishes: commands, observations and queries."""
    return (f"np.cmd.{org}.>", f"np.evt.agent.{org}.>", f"{QUERIES}.{org}.>")


def _events(org: str) -> str:
    return f"np.evt.*.{org}.>"


def _refuse_doubles(names: Sequence[str], kind: str) -> None:
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ValueError(f"more than one {kind} is {', '.join(doubles)}")
