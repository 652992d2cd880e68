"""The gateway with the generated accounts, where its user has no more rights than it needs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bus.accounts import ORG, OTHER_ORG, Guarded, guarded_server
from bus.harness import serving, until
from gateway.host.settings import GatewaySettings
from gateway.main import Gateway
from nodepool.auth.accounts import GATEWAY, OPERATOR
from nodepool.contract.actors import Member, members_text
from nodepool.contract.roles import ROLES
from nodepool.host.settings import Settings
from nodepool.nats.wire.connection import Connection, connect
from support.constants import H100, ZONE
from support.services import services

MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": H100, "targetNodes": 1},
}


@asynccontextmanager
async def at_work(server: Guarded, folder: Path) -> AsyncIterator[None]:
    """A gateway, with the services that answer what is sent through it."""
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
    service = Settings(
        url=server.url, log_file=str(folder / "gateway.log"), access=server.access(GATEWAY)
    )
    gateway = Gateway(GatewaySettings(service, str(members)))
    stop = asyncio.Event()
    task = asyncio.create_task(gateway.run(stop))
    validator, aggregator, capacity = services("validator", "aggregator", "capacity")
    try:
        async with (
            serving(validator, server, folder / "1.log", access=server.access("validator")),
            serving(aggregator, server, folder / "2.log", access=server.access("aggregator")),
            serving(capacity, server, folder / "3.log", access=server.access("capacity")),
        ):
            await until(lambda: gateway.obstacle() is None or task.done())
            yield
    finally:
        stop.set()
        await task


@asynccontextmanager
async def user(server: Guarded, name: str) -> AsyncIterator[Connection]:
    """A connection of a user with its key."""
    connection = await connect(server.url, name, access=server.access(name))
    try:
        yield connection
    finally:
        await connection.close()


async def ask(client: Connection, subject: str, **fields: object) -> dict[str, object]:
    """The reply to a command or query."""
    reply = await client.request(subject, json.dumps(fields).encode(), timeout=15)
    answer: dict[str, object] = json.loads(reply.data)
    return answer


async def test_the_rights_of_each_user_are_enough_and_the_server_denies_nothing(
    tmp_path: Path,
) -> None:
    # given the generated accounts, with the streams and a gateway
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(server, tmp_path),
            user(server, "agent") as agent,
            user(server, "editor") as editor,
            user(server, "viewer") as viewer,
            user(server, "other-owner") as other,
            user(server, OPERATOR) as operator,
        ):
            # when users send what their roles allow, and ask for what they may see
            registered = await ask(agent, f"np.cmd.{ORG}.prod._.RegisterCluster", zone=ZONE)
            applied = await ask(editor, f"np.cmd.{ORG}.prod.train.ApplyNodePool", **MANIFEST)
            got = await ask(agent, f"np.api.{ORG}.List", kind="nodepools", cluster="prod")
            listed = await ask(
                viewer, f"np.api.{ORG}.List", kind="nodes", notOlderThan=applied.get("position", 0)
            )
            events = await ask(viewer, f"np.api.{ORG}.Events", cluster="prod")
            explained = await ask(viewer, f"np.api.{ORG}.Explain", cluster="prod", pool="none")
            found = await ask(
                viewer,
                f"np.api.{ORG}.FindCapacity",
                selections=[{"instanceType": H100, "count": 1}],
            )
            foreign = await ask(other, f"np.api.{OTHER_ORG}.List", kind="nodepools")
            info = json.loads((await operator.request("$SRV.INFO.gateway", timeout=10)).data)

        # then all is answered
        answers = (registered, applied, got, listed, events, found, foreign)
        assert [answer for answer in answers if "reason" in answer] == []
        assert explained["reason"] == "NotFound"
        assert foreign["items"] == []
        assert [each["name"] for each in info["endpoints"]] == [
            "commands",
            "observations",
            "queries",
        ]
        assert server.violations() == []
