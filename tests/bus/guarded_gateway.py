"""A gateway at work on a server with the generated accounts, and users who ask it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from bus.accounts import ORG, OTHER_ORG, Guarded
from bus.harness import PATIENCE_S, ReplicaProcess, launched, serving, until
from gateway.host.settings import GatewaySettings
from gateway.main import Gateway
from nodepool.auth.accounts import GATEWAY
from nodepool.contract.actors import Member, members_text
from nodepool.contract.roles import ROLES
from nodepool.host.settings import Settings
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.library import Msg
from support.constants import H100
from support.services import services
from testbed.ports import free_port

ANSWER_S = 2 * PATIENCE_S
"""The longest wait for the answer to a query that was sent after a hundred other queries."""
MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": H100, "targetNodes": 1},
}


# Any: the fields of GatewaySettings, each of another type.
@asynccontextmanager
async def at_work(
    server: Guarded, folder: Path, *names: str, **settings: Any
) -> AsyncIterator[Gateway]:
    """A gateway with these settings, and the services of these names."""
    members = str(members_file(server, folder))
    service = Settings(
        url=server.url, log_file=str(folder / "gateway.log"), access=server.access(GATEWAY)
    )
    gateway = Gateway(GatewaySettings(service, members, **settings))
    stop = asyncio.Event()
    task = asyncio.create_task(gateway.run(stop))
    try:
        async with served(server, folder, *names):
            await until(lambda: gateway.obstacle() is None or task.done())
            yield gateway
    finally:
        stop.set()
        await task


@asynccontextmanager
async def served(server: Guarded, folder: Path, *names: str) -> AsyncIterator[None]:
    """The services of these names, each with its own key."""
    async with AsyncExitStack() as stack:
        for each in services(*names) if names else ():
            log, access = folder / f"{each.name}.log", server.access(each.name)
            await stack.enter_async_context(serving(each, server, log, access=access))
        yield


@contextmanager
def gateway_process(server: Guarded, folder: Path) -> Iterator[ReplicaProcess]:
    """A gateway as a process, which is killed at the end."""
    access, members = server.access(GATEWAY), str(members_file(server, folder))
    with launched(
        *(GATEWAY, server, folder, free_port()),
        members_file=members,
        nkey_file=access.nkey_file,
        inbox_prefix=access.inbox_prefix,
    ) as process:
        yield process


def members_file(server: Guarded, folder: Path) -> Path:
    """Writes the file with the users of both organisations; its path."""
    members = folder / "members.json"
    tenants = [each for each in server.identities.values() if each.account in (ORG, OTHER_ORG)]
    roles = {role: role for role in ROLES}
    members.write_text(
        members_text(
            Member(
                each.account,
                each.key.public,
                each.user,
                roles[each.user],  # type: ignore[index]  # Each user has the name of its role.
                "prod" if each.user == "agent" else "",
            )
            for each in tenants
        )
    )
    return members


async def listen(connection: Connection, subject: str) -> list[str]:
    """The subjects of what a user hears on a subject from now on."""
    heard: list[str] = []

    async def note(message: Msg) -> None:
        heard.append(message.subject)

    await connection.subscribe(subject, cb=note)
    await connection.flush()
    return heard


@asynccontextmanager
async def user(server: Guarded, name: str) -> AsyncIterator[Connection]:
    """A connection of a user with its key."""
    connection = await connect(server.url, name, access=server.access(name))
    try:
        yield connection
    finally:
        await connection.close()


async def ask(client: Connection, subject: str, **fields: object) -> dict[str, object]:
    """The reply to a command, or to a query once the read model is not behind the log."""
    answer: dict[str, object] = {"reason": "Behind"}
    while answer.get("reason") == "Behind":  # The time limit of the test bounds the wait.
        reply = await client.request(subject, json.dumps(fields).encode(), timeout=ANSWER_S)
        answer = json.loads(reply.data)
    return answer
