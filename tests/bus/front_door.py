"""A server with an account for the platform and one per organisation, and a gateway at work."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from bus.harness import BINARY, PATIENCE_S, until
from gateway.host.settings import GatewaySettings
from gateway.main import Gateway
from nodepool.contract.actors import Member, members_text
from nodepool.contract.roles import Role
from nodepool.host.settings import Settings
from nodepool.local.config import MAX_PAYLOAD
from testbed.ports import free_port

ORG, OTHER = "acme", "umbra"
USERS: tuple[tuple[str, str, Role, str], ...] = (
    (ORG, "vera", "viewer", ""),
    (ORG, "edith", "editor", ""),
    (ORG, "olga", "owner", ""),
    (ORG, "agent-prod", "agent", "prod"),
    (OTHER, "ulrich", "owner", ""),
)
"""Each user by organisation, name, role, and cluster; the name is the password too."""
SERVER = """\
listen: "127.0.0.1:{port}"
max_payload: {payload}
jetstream {{ store_dir: "{folder}/data" }}
accounts {{
  PLATFORM {{
    jetstream: enabled
    exports: [{exports}]
    users: [{{user: platform, password: platform}}]
  }}
{accounts}
}}
"""
IMPORT = """\
{{service: {{account: PLATFORM, subject: "np.door.{what}.{org}.>"}}
       to: "np.{what}.{org}.>", share: true}}"""
DOORS = ("cmd", "evt.agent", "api")
ACCOUNT = """\
  {org} {{
    imports: [
      {imports}
      {{stream: {{account: PLATFORM, subject: "np.evt.*.{org}.>"}}}}
    ]
    users: [{users}]
  }}"""


class FrontDoor:
    """A running server, as the platform sees it."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self.folder = folder
        self.url = self.of("platform")
        self.members = folder / "members.json"

    def of(self, user: str) -> str:
        """The address for a user."""
        return f"nats://{user}:{user}@127.0.0.1:{self.port}"

    def let_in(self, users: Sequence[tuple[str, str, Role, str]] = USERS) -> None:
        """Make these the members that the gateway knows."""
        members = (Member(org, name, name, role, cluster) for org, name, role, cluster in users)
        self.members.write_text(members_text(members))

    def environment(self) -> Mapping[str, str]:
        """The settings of a gateway that is a process, beside those of each service."""
        return {"members_file": str(self.members), "url": self.url}

    @asynccontextmanager
    async def user(self, name: str) -> AsyncIterator[Client]:
        """A client of a user, as the nats-py library makes it."""
        client = await nats.connect(self.of(name))
        try:
            yield client
        finally:
            await client.close()


@contextmanager
def front_door(folder: Path) -> Iterator[FrontDoor]:
    """A server with its accounts, and the members that the gateway knows."""
    port = free_port()
    orgs = sorted({org for org, *_ in USERS})
    exports, accounts = list[str](), list[str]()
    for org in orgs:
        users = ", ".join(f"{{user: {u}, password: {u}}}" for o, u, _, _ in USERS if o == org)
        imports = "\n      ".join(IMPORT.format(what=what, org=org) for what in DOORS)
        accounts.append(ACCOUNT.format(org=org, users=users, imports=imports))
        only = f"accounts: [{org}]"
        exports += [f'{{service: "np.door.{each}.{org}.>", {only}}}' for each in DOORS]
        exports.append(f'{{stream: "np.evt.*.{org}.>", {only}}}')
    text = SERVER.format(
        port=port,
        payload=MAX_PAYLOAD,
        folder=folder,
        exports=", ".join(exports),
        accounts="\n".join(accounts),
    )
    (folder / "nats.conf").write_text(text)
    door = FrontDoor(port, folder)
    door.let_in()
    with (
        (folder / "nats.log").open("wb") as log,
        subprocess.Popen(
            [BINARY, "--config", folder / "nats.conf"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield door
        finally:
            process.terminate()


# Any: the fields of GatewaySettings, each of another type.
@asynccontextmanager
async def gateway_at(door: FrontDoor, **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway at work in this process."""
    service = Settings(url=door.url, log_file=str(door.folder / "gateway.log"))
    gateway = Gateway(GatewaySettings(service, str(door.members), **settings))
    stop = asyncio.Event()
    task = asyncio.create_task(gateway.run(stop))
    try:
        await until(lambda: gateway.obstacle() is None or task.done())
        yield gateway
    finally:
        stop.set()
        await task


def said(message: Msg) -> dict[str, object]:
    """The JSON of a reply."""
    reply: dict[str, object] = json.loads(message.data)
    return reply


async def ask(client: Client, query: str, org: str = ORG, **fields: object) -> dict[str, object]:
    """The answer to a query."""
    subject = f"np.api.{org}.{query}"
    return said(await client.request(subject, json.dumps(fields).encode(), timeout=PATIENCE_S))
