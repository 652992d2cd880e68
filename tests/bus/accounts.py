"""A real server with the generated accounts: two organisations, and every user of the platform."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bus.harness import BINARY
from nodepool.auth.accounts import (
    OWNERS,
    PLATFORM,
    PROVISIONER,
    SPEAKERS,
    Member,
    Organisation,
    Proof,
    User,
    configuration,
    platform_rights,
)
from nodepool.auth.rights import Rights, inbox_prefix
from nodepool.contract.roles import Role
from nodepool.contract.services import EVERY
from nodepool.local.config import MAX_PAYLOAD, PENDING_MAX
from nodepool.nats.log.streams import provision
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import connect
from support.nats_users import Key, key
from support.services import services
from testbed.ports import free_port

ORG, OTHER_ORG, CLUSTER, OTHER_CLUSTER = "acme", "umbra", "prod", "test"
ANONYMOUS = "anonymous"
SYSTEM_USER = "system"
MEMBERS: tuple[Role, ...] = ("viewer", "editor", "owner", "agent")
SERVER = f"""\
listen: "127.0.0.1:{{port}}"
max_payload: {{max_payload}}
max_pending: {PENDING_MAX}
jetstream {{{{ store_dir: "{{folder}}/data" }}}}
include "accounts.conf"
"""
VIOLATION = re.compile(r"(?:Publish|Subscription) Violation[^\n]*")


@dataclass(frozen=True)
class Identity:
    """A user as the matrix and the stories name it: its account, its key and its rights.

    rights: None for a user who may do everything in its account.
    """

    name: str
    user: str
    account: str
    key: Key
    rights: Rights | None


class Guarded:
    """A running server with the accounts, and what each identity shows to it."""

    def __init__(self, port: int, folder: Path, identities: Sequence[Identity]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port
        self.url = f"nats://127.0.0.1:{port}"
        self.identities = {each.name: each for each in identities}
        self._folder = folder

    def access(self, name: str) -> Access:
        """What a connection of an identity shows."""
        identity = self.identities[name]
        seed = self._folder / f"{name}.nk"
        role = f"# {identity.account}/{identity.user}, {identity.user}\n"
        seed.write_text(f"{role if identity.user in MEMBERS else ''}{identity.key.seed}\n")
        return Access(nkey_file=str(seed), inbox_prefix=inbox_prefix(identity.user))

    def says(self, text: str) -> int:
        """How often a text is in the log of the server."""
        return (self._folder / "nats.log").read_text().count(text)

    def violations(self) -> list[str]:
        """Every violation of a permission in the log of the server."""
        return VIOLATION.findall((self._folder / "nats.log").read_text())

    def start(self) -> None:
        """Start the server on its data."""
        with (self._folder / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                [BINARY, "--config", self._folder / "nats.conf"], stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End the server without letting it finish anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def until_ready(self) -> None:
        """Return once the server takes connections."""
        connection = await connect(self.url, "test", access=self.access(PROVISIONER))
        await connection.close()

    async def provision(self) -> None:
        """Make the streams, as the provisioner."""
        connection = await connect(self.url, "test", access=self.access(PROVISIONER))
        await provision(connection)
        await connection.close()


def identities() -> tuple[list[Identity], str]:
    """Every identity, and the text of the accounts with them."""
    keys = (key("user", number) for number in range(1, 200))
    every = services(*EVERY)
    platform = [
        Identity(name, name, PLATFORM if name in OWNERS else SPEAKERS, next(keys), rights)
        for name, rights in platform_rights(every).items()
    ]
    system = Identity(SYSTEM_USER, SYSTEM_USER, "SYS", next(keys), None)
    tenants, organisations = list[Identity](), list[Organisation]()
    for org, prefix in ((ORG, ""), (OTHER_ORG, "other-")):
        members = list[Member]()
        for role in MEMBERS:
            own = next(keys)
            cluster = CLUSTER if role == "agent" else ""
            member = Member(User(role, Proof(own.public)), role, cluster)
            members.append(member)
            rights = member.rights(org)
            tenants.append(Identity(f"{prefix}{role}", role, org, own, rights))
        organisations.append(Organisation(org, tuple(members)))
    text = configuration(
        every,
        [User(each.user, Proof(each.key.public)) for each in platform],
        organisations,
        [User(system.user, Proof(system.key.public))],
    )
    return [*platform, system, *tenants], text


@contextmanager
def guarded_server(folder: Path) -> Iterator[Guarded]:
    """A server with the generated accounts."""
    port, (everyone, text) = free_port(), identities()
    (folder / "accounts.conf").write_text(text)
    configured = SERVER.format(port=port, folder=folder, max_payload=MAX_PAYLOAD)
    (folder / "nats.conf").write_text(configured)
    server = Guarded(port, folder, everyone)
    server.start()
    try:
        yield server
    finally:
        server.kill()
