"""Attacks of tenants, of an agent and of a hostile service on a server with the accounts."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.accounts import MEMBERS, ORG, OTHER_ORG, Guarded, guarded_server
from bus.harness import PATIENCE_S, limit, outcome, read_all, send, serving, until
from nodepool.auth.accounts import GATEWAY, OPERATOR
from nodepool.contract.door import DOOR
from nodepool.nats.log.api import request
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.library import Msg
from support.services import services

COMMAND = f"np.cmd.{ORG}.prod.train.ScaleNodePool"
FORGED = {
    # Headers that begin with the id of a batch are not read at all.
    "Nats-Batch-Sequence": "1",
    "Nats-Batch-Id": "b1",
    "Nats-Expected-Last-Subject-Sequence": "0",
    "Nats-Msg-Id": "m1",
    "Nats-TTL": "1s",
    "Nats-Rollup": "sub",
}
INFO = "Nats-Request-Info"
"""The header in which the server says who has sent a request."""
ELSEWHERE = (
    f"np.cmd.{OTHER_ORG}.prod.train.DeleteNodePool",
    f"np.evt.quota.{ORG}._._.QuotaSet",
    "np.commit.quota",
    "np-snapshot.quota.manifest",
    f"$KV.quotas.{ORG}.z.t",
    f"$JS.API.STREAM.DELETE.{STREAM}",
    "_INBOX_operator.x",
)
"""Subjects on which a tenant may say nothing, by itself or by the reply to a request."""


class Installation:
    """A server with streams, the operator, and a stand-in for the gateway.

    operator: a connection of the operator.
    arrived: what has come through the front door.
    """

    def __init__(self, server: Guarded, operator: Connection) -> None:
        self.server = server
        self.operator = operator
        self.arrived: list[Msg] = []
        self.connections = [operator]

    async def user(self, name: str) -> Connection:
        """A connection of an identity, for as long as the installation is there."""
        connection = await connect(self.server.url, name, access=self.server.access(name))
        self.connections.append(connection)
        return connection

    async def log(self) -> list[tuple[str, bytes]]:
        """The subject and the content of each message in the log."""
        return [(entry.subject, entry.content) for entry in await read_all(self.operator)]


@asynccontextmanager
async def installation(folder: Path) -> AsyncIterator[Installation]:
    """An installation whose gateway acknowledges everything and forwards nothing."""
    with guarded_server(folder) as server:
        await server.provision()
        operator = await connect(server.url, OPERATOR, access=server.access(OPERATOR))
        installed = Installation(server, operator)
        gateway = await installed.user(GATEWAY)

        async def answer(message: Msg) -> None:
            installed.arrived.append(message)
            if message.reply:
                await gateway.publish(message.reply, b'{"accepted": true}')

        await gateway.subscribe(f"{DOOR}.>", cb=answer)
        await gateway.flush()
        try:
            yield installed
        finally:
            for connection in installed.connections:
                await connection.close()


@pytest.mark.parametrize("role", MEMBERS)
async def test_nobody_of_an_organisation_sets_its_quota(tmp_path: Path, role: str) -> None:
    async with installation(tmp_path) as installed:
        # given a user of an organisation
        user = await installed.user(role)

        # when it sends the command that sets the quota of the organisation, and another command
        subject = f"np.cmd.{ORG}._._.SetQuota"
        await user.publish(subject, b'{"limit": 1000000}')
        await user.publish(f"np.evt.agent.{ORG}.prod.train.NodeReported", b"{}")
        await user.publish(f"np.api.{ORG}.get", b"{}")
        await user.flush()
        await until(lambda: any(f".api.{ORG}." in each.subject for each in installed.arrived))

        # then the command has reached neither the gateway nor the log
        assert subject in " ".join(installed.server.violations())
        assert not [each for each in installed.arrived if "SetQuota" in each.subject]
        assert await installed.log() == []


async def test_batches_that_a_tenant_opens_do_not_stop_the_commits_of_a_service(
    tmp_path: Path,
) -> None:
    (quota,) = services("quota")
    async with installation(tmp_path) as installed:
        access = installed.server.access("quota")
        async with serving(quota, installed.server, tmp_path / "quota.log", access=access):
            # given a tenant that opens more batches than the server keeps for a stream
            owner = await installed.user("owner")
            for number in range(300):
                opening = {"Nats-Batch-Id": f"b{number}", "Nats-Batch-Sequence": "1"}
                await owner.publish(COMMAND, b"{}", headers=opening)
            await owner.flush()
            await until(lambda: len(installed.arrived) == 300)

            # when the operator sends a command
            await send(installed.operator, limit(3), "c1")

            # then the service commits its outcome, and the log has nothing of the tenant
            assert (await outcome(installed.operator, "c1"))["type"] == "CommandAccepted"
            assert COMMAND not in dict(await installed.log())


async def test_the_reply_to_a_tenant_arrives_in_its_own_account_wherever_it_asks_for_it(
    tmp_path: Path,
) -> None:
    async with installation(tmp_path) as installed:
        # given a tenant, and another one that listens
        owner, other = await installed.user("owner"), await installed.user("other-owner")
        heard: list[str] = []

        async def note(message: Msg) -> None:
            heard.append(message.subject)

        await other.subscribe(f"np.evt.*.{OTHER_ORG}.*.*.*", cb=note)
        await other.subscribe("_INBOX_owner.>", cb=note)
        await other.flush()

        # when the tenant has its commands acknowledged where others speak
        own = f"np.cmd.{ORG}.prod.train.DeleteNodePool"
        for reply in (*ELSEWHERE, own, "_INBOX_owner.x"):
            await owner.publish(COMMAND, b"{}", reply=reply)
        answer = await owner.request(COMMAND, b"{}", timeout=PATIENCE_S)

        # then only its own requests have a reply, and nothing has happened elsewhere
        assert json.loads(answer.data) == {"accepted": True}
        assert {each.subject for each in installed.arrived} == {
            f"{DOOR}.cmd.{ORG}.prod.train.ScaleNodePool"
        }
        await other.flush()
        assert heard == []
        assert await installed.log() == []


async def test_the_gateway_learns_from_the_server_who_asks_whatever_the_sender_claims(
    tmp_path: Path,
) -> None:
    async with installation(tmp_path) as installed:
        # given a viewer of one organisation, and an owner of another
        viewer, other = await installed.user("viewer"), await installed.user("other-owner")
        owner = installed.server.identities["owner"].key.public
        forged = json.dumps({"acc": ORG, "user": owner})

        # when both claim to be the owner of the first
        await viewer.publish(f"np.api.{ORG}.get", b"{}", headers=FORGED | {INFO: forged})
        await other.publish(f"np.api.{OTHER_ORG}.get", b"{}", headers={INFO: forged})
        await until(lambda: len(installed.arrived) == 2)

        # then the gateway hears the account and the key of the sender
        found = [json.loads((each.headers or {})[INFO]) for each in installed.arrived]
        assert {(each["acc"], each["user"]) for each in found} == {
            (ORG, installed.server.identities["viewer"].key.public),
            (OTHER_ORG, installed.server.identities["other-owner"].key.public),
        }


@pytest.mark.parametrize("name", ["agent", "owner"])
async def test_no_tenant_makes_a_consumer(tmp_path: Path, name: str) -> None:
    async with installation(tmp_path) as installed:
        # given the agent of a cluster, or an owner
        user = await installed.user(name)

        # when it asks for as many consumers as the server has room for
        for number in range(1_000):
            subject = f"$JS.API.CONSUMER.CREATE.{STREAM}.c{number}"
            body = {"stream_name": STREAM, "config": {"name": f"c{number}", "ack_policy": "none"}}
            await user.publish(subject, json.dumps(body).encode())
        await user.flush()

        # then each request is denied, and there is no consumer
        await until(lambda: len(installed.server.violations()) >= 1_000)
        names = await request(installed.operator, f"$JS.API.CONSUMER.NAMES.{STREAM}")
        assert not names["consumers"]


async def test_the_events_of_an_organisation_are_heard_by_its_users_alone(tmp_path: Path) -> None:
    (quota,) = services("quota")
    async with installation(tmp_path) as installed:
        access = installed.server.access("quota")
        async with serving(quota, installed.server, tmp_path / "quota.log", access=access):
            # given a viewer of each of two organisations, who listens to its own
            heard: dict[str, list[str]] = {ORG: [], OTHER_ORG: []}
            users = [await installed.user(name) for name in ("viewer", "other-viewer")]
            for org, user in zip(heard, users, strict=True):

                async def note(message: Msg, org: str = org) -> None:
                    heard[org].append(message.subject)

                await user.subscribe(f"np.evt.*.{org}.*.*.*", cb=note)
                await user.flush()

            # when the quota of each is set
            for number, org in enumerate(heard):
                await send(installed.operator, limit(3, org), f"c{number}")
                await outcome(installed.operator, f"c{number}")

            # then each hears what is about its organisation
            await until(lambda: all(len(each) == 2 for each in heard.values()))
            for org, subjects in heard.items():
                assert {subject.split(".")[3] for subject in subjects} == {org}


async def test_a_hostile_service_says_nothing_that_is_believed_of_another(tmp_path: Path) -> None:
    (quota,) = services("quota")
    async with installation(tmp_path) as installed:
        access = installed.server.access("quota")
        async with serving(quota, installed.server, tmp_path / "quota.log", access=access):
            await send(installed.operator, limit(3), "c1")
            await outcome(installed.operator, "c1")

            # given the user of another service, and an event that it has made up
            hostile = await installed.user("autoscaler")
            own = "np.evt.autoscaler.x.y.z.AutoscalingFailed"
            made_up = {"specversion": "1.0", "id": "e1", "type": "QuotaSet", "source": "quota"}
            await hostile.publish(own, json.dumps(made_up).encode())

            # when it has the server reply, and deliver what it has made up, where quota speaks
            target = f"np.evt.quota.{ORG}._._.QuotaSet"
            for subject in (target, "np.commit.quota"):
                await hostile.publish(subject, b"{}")
                look = f"$JS.API.STREAM.MSG.GET.{STREAM}"
                await hostile.publish(look, b'{"last_by_subj":"%b"}' % own.encode(), reply=subject)
                direct = f"$JS.API.DIRECT.GET.{STREAM}"
                await hostile.publish(direct, b'{"seq":1}', reply=subject)
                config = {"name": "h", "deliver_subject": subject, "filter_subject": own}
                config |= {"ack_policy": "none"}
                body = {"stream_name": STREAM, "config": config}
                await hostile.publish(
                    f"$JS.API.CONSUMER.CREATE.{STREAM}.h.{own}", json.dumps(body).encode()
                )
            await hostile.flush()
            await asyncio.gather(*(installed.operator.flush() for _ in range(3)))

            # then no event of quota is there that quota has not said
            log = await installed.log()
            said = [content for subject, content in log if subject == target]
            believed = [content for content in said if b"specversion" in content]
            assert [json.loads(content)["data"]["limit"] for content in believed] == [3]

            # and quota works as before
            await send(installed.operator, limit(5), "c2")
            assert (await outcome(installed.operator, "c2"))["type"] == "CommandAccepted"
