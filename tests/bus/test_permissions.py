"""`deploy/permissions.conf` on a real server: nobody can speak as another, or stop a service."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout

from bus.harness import BINARY, connected, outcome, read_all, send, serving, until
from contracts.samples import sample
from nodepool.cli.app import run
from nodepool.client import Client as ControlPlane
from nodepool.client import Refused
from nodepool.contract.commands import RegisterCluster, SetQuota
from nodepool.contract.events import CommandAccepted, NodeReported
from nodepool.contract.messages import envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.nats.log.api import message_at, publish_event, request
from nodepool.nats.log.streams import STREAM, streams
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import Connection, connect
from support.constants import H100, ZONE
from support.services import services
from testbed.ports import free_port

PERMISSIONS = Path(__file__).parents[2] / "deploy" / "permissions.conf"
MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": H100, "targetNodes": 1},
}
CONFIGURATION = """\
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/data" }}
include "permissions.conf"
"""


class Guarded:
    """The address of a server, as a service sees it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = self.of("services")

    def of(self, user: str) -> str:
        return f"nats://{user}:secret@127.0.0.1:{self.port}"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """A server with the permissions of the example."""
    port = free_port()
    (tmp_path / "permissions.conf").write_text(PERMISSIONS.read_text())
    configuration = tmp_path / "nats.conf"
    configuration.write_text(CONFIGURATION.format(port=port, folder=tmp_path))
    names = ("SERVICES_PASSWORD", "ACME_PASSWORD", "AGENT_PASSWORD")
    environment = {**os.environ, **dict.fromkeys(names, "secret")}
    with (
        (tmp_path / "nats.log").open("wb") as log,
        subprocess.Popen(
            [BINARY, "--config", configuration], env=environment, stdout=log, stderr=log
        ) as process,
    ):
        yield Guarded(port)
        process.terminate()


@asynccontextmanager
async def organisation(server: Guarded) -> AsyncIterator[Client]:
    """A client of the organisation, as the nats-py library makes it."""
    client = await nats.connect(server.of("acme"), inbox_prefix=b"_INBOX_acme")
    yield client
    await client.close()


def command(org: str) -> tuple[str, bytes]:
    """The subject and the content of a command of this organisation."""
    data = RegisterCluster(org=org, cluster="prod", zone=ZONE)
    envelope = envelope_of(RegisterCluster).model_construct(
        id="c1", type="RegisterCluster", source="me", data=data
    )
    return f"np.cmd.{org}.prod._.RegisterCluster", envelope.encode()


async def test_an_organisation_sends_its_commands_and_reads_their_outcomes(
    guarded: Guarded, tmp_path: Path
) -> None:
    # given a service that is connected as one
    (validator,) = services("validator")
    async with (
        connected(guarded.url),
        serving(validator, guarded, tmp_path / "one.log"),
        organisation(guarded) as client,
    ):
        # when an organisation sends a command
        events = await client.subscribe("np.evt.*.acme.*.*.*")
        subject, content = command("acme")
        await client.request(subject, content, timeout=10)

        # then it reads the outcome
        event = json.loads((await events.next_msg(timeout=10)).data)
        assert event["type"] == "CommandAccepted"


@pytest.mark.parametrize(
    "subject",
    [
        "np.cmd.other.prod._.RegisterCluster",
        "np.cmd.fleet.z._.AddMachines",
        "np.evt.quota.acme._._.QuotaSet",
        "np.evt.clock.quota._._.Wake",
        "np.commit.quota",
        "np.dead.quota",
        "np-snapshot.quota.manifest",
        "$KV.nodepools.acme.prod.train",
        "$JS.API.STREAM.DELETE.NODEPOOL",
    ],
)
async def test_an_organisation_cannot_publish_anything_else(guarded: Guarded, subject: str) -> None:
    async with connected(guarded.url) as connection, organisation(guarded) as client:
        # given a bus
        # when an organisation publishes on a subject that is not its own
        with pytest.raises(NatsTimeout):
            await client.request(subject, b"{}", timeout=0.3)

        # then nothing is stored
        assert await read_all(connection) == []


async def test_acknowledgements_that_are_sent_where_a_service_speaks_do_no_harm(
    guarded: Guarded, tmp_path: Path
) -> None:
    (validator,) = services("validator")
    async with (
        connected(guarded.url) as connection,
        serving(validator, guarded, tmp_path / "one.log"),
        organisation(guarded) as client,
    ):
        # given an organisation that has the server acknowledge its commands on the subjects of
        # the services, where it may not publish: the server does not look at who asks for that
        subject, content = command("acme")
        replies = ["np.commit.validator", "np.evt.validator.acme.prod._.ClusterRegistered"]
        for reply in [*replies, "np-snapshot.validator.manifest", "$KV.clusters.acme.prod"] * 5:
            await client.publish(subject, content, reply=reply)
        await client.flush()

        # when it sends a command
        await client.request(subject, content.replace(b'"c1"', b'"c2"'), timeout=10)

        # then that has its outcome, and nothing is believed
        assert (await outcome(connection, "c2"))["type"] == "CommandAccepted"
        log = await read_all(connection)
        assert sum(entry.subject == replies[0] for entry in log) >= 5
        said = [e for e in log if e.subject == replies[1] and b"specversion" in e.content]
        assert len(said) == 1


AGENT = "agent-acme-prod"
OWN_INBOX = Access(inbox_prefix=f"_INBOX_{AGENT}")


async def test_an_agent_registers_its_cluster_and_reads_and_reports_what_is_there(
    guarded: Guarded, tmp_path: Path
) -> None:
    # given the services that an agent needs, and a NodePool of its cluster
    validator, aggregator = services("validator", "aggregator")
    async with (
        serving(validator, guarded, tmp_path / "1.log"),
        serving(aggregator, guarded, tmp_path / "2.log"),
        ControlPlane(guarded.of(AGENT), org="acme", cluster="prod", access=OWN_INBOX) as agent,
        connected(guarded.url) as operator,
    ):
        connection = await connect(guarded.of(AGENT), "agent", access=OWN_INBOX)
        # when the agent registers the cluster, applies a NodePool, and reports a Node
        await agent.clusters.register("prod", ZONE, kubernetes=True)
        applied = await agent.nodepools.apply(MANIFEST)
        report = sample(NodeReported, org="acme", cluster="prod", pool="train")
        stored = await publish_event(connection, subject_of(report, "agent"), b"{}")

        # then it reads the objects and the outcome, and the report is in the log
        await until(agent.nodepools.catch_up)
        documents = await agent.nodepools.list()
        entry = await message_at(operator, STREAM, stored)
        await connection.close()
        assert (applied.result, [each.key for each in documents]) == ("created", ["train"])
        assert await agent.nodes.list() == []
        assert entry is not None
        assert entry.subject == "np.evt.agent.acme.prod.train.NodeReported"


@pytest.mark.parametrize(
    "subject",
    [
        "np.cmd.acme.test._.RegisterCluster",
        "np.cmd.other.prod._.RegisterCluster",
        "np.cmd.acme._._.SetQuota",
        "np.cmd.fleet.z._.AddMachines",
        "np.evt.agent.acme.test.train.NodeReported",
        "np.evt.agent.other.prod.train.NodeReported",
        "np.evt.fleet.fleet.z.m.NodeObserved",
        "np.evt.lifecycle.acme.prod.train.NodeUpdated",
        "np.commit.lifecycle",
        "np-snapshot.lifecycle.manifest",
        "$KV.nodes.acme.prod.n1",
        "$JS.API.STREAM.DELETE.NODEPOOL",
        "$JS.API.STREAM.PURGE.KV_nodes",
        "$JS.API.STREAM.MSG.DELETE.NODEPOOL",
        "$JS.API.CONSUMER.CREATE.KV_quotas.x",
        "$JS.API.CONSUMER.CREATE.KV_nodes.x",
        "$JS.API.CONSUMER.CREATE.KV_nodes.x.$KV.nodes.other.>",
    ],
)
async def test_an_agent_cannot_publish_anything_else(guarded: Guarded, subject: str) -> None:
    async with connected(guarded.url) as connection:
        # given a bus
        agent = await limited(guarded, AGENT)

        # when an agent publishes on a subject that is not its own
        with pytest.raises(NatsTimeout):
            await agent.request(subject, b"{}", timeout=0.3)
        await agent.close()

        # then nothing is stored, and nothing is gone
        assert await read_all(connection) == []


LIMITED = sorted({*re.findall(r'user: "([^"]+)"', PERMISSIONS.read_text())} - {"services"})
"""Every user of the example but the services' own."""
OF_A_CONSUMER = ("DELETE", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN", "DURABLE.CREATE")
OF_A_STREAM = (
    *("CONSUMER.CREATE", "CONSUMER.LIST", "CONSUMER.NAMES", "DIRECT.GET", "STREAM.CREATE"),
    *("STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT"),
    *("STREAM.RESTORE", "STREAM.PEER.REMOVE", "STREAM.LEADER.STEPDOWN", "STREAM.TEMPLATE.CREATE"),
)
OF_A_SERVER = ("META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.PURGE.$G")
TELLING = ("_INBOX.>", "$JS.>", "$JS.EVENT.ADVISORY.>", "$JS.API.>", "$SYS.>", "$KV.>", "np.>", ">")
"""Subjects on which the names of consumers can be heard, or what they deliver."""


async def limited(server: Guarded, user: str, errors: list[str] | None = None) -> Client:
    """A client of a user with an inbox of its own, which notes what the server denies."""

    async def note(error: Exception) -> None:
        if errors is not None:
            errors.append(str(error).lower())

    prefix = f"_INBOX_{user}"
    return await nats.connect(server.of(user), inbox_prefix=prefix, error_cb=note)


async def consumers(connection: Connection) -> list[str]:
    """The names of the consumers of the log."""
    names = (await request(connection, f"$JS.API.CONSUMER.NAMES.{STREAM}"))["consumers"]
    assert isinstance(names, list)
    return names


@pytest.mark.parametrize("user", LIMITED)
async def test_nobody_changes_what_a_service_reads_with_or_from(
    guarded: Guarded, tmp_path: Path, user: str
) -> None:
    # given a service at work, and another user who knows the name of its consumer
    (quota,) = services("quota")
    async with (
        connected(guarded.url) as operator,
        serving(quota, guarded, tmp_path / "one.log"),
    ):
        before = await consumers(operator)
        tried = [f"CONSUMER.{verb}.{STREAM}.{name}" for verb in OF_A_CONSUMER for name in before]
        tried += [f"{verb}.{stream}" for verb in OF_A_STREAM for stream in streams()]
        tried = [f"$JS.API.{subject}" for subject in (*tried, *OF_A_SERVER)]

        # when this user publishes every request that changes a consumer, a stream or a server
        denied: list[str] = []
        client = await limited(guarded, user, denied)
        for subject in tried:
            await client.publish(subject, b'{"pause_until":"2099-01-01T00:00:00Z"}')
            await client.flush()

        # then each is denied, and the service goes on with the consumer that it has
        await until(lambda: len(denied) >= len(tried))
        await client.close()
        text = 'nats: permissions violation for publish to "{}"'
        assert denied == [text.format(subject.lower()) for subject in tried]
        await send(operator, SetQuota(org="a", zone=ZONE, instance_type=H100, limit=1), "c1")
        assert (await outcome(operator, "c1"))["type"] == "CommandAccepted"
        assert before
        assert {*before} <= {*await consumers(operator)}


@pytest.mark.parametrize("user", LIMITED)
async def test_nobody_hears_what_the_services_are_told(guarded: Guarded, user: str) -> None:
    # given a bus
    async with connected(guarded.url):
        # when another user subscribes to what names consumers, or what they deliver
        denied: list[str] = []
        client = await limited(guarded, user, denied)
        for subject in TELLING:
            await client.subscribe(subject)
        await client.flush()

        # then each is denied
        await until(lambda: len(denied) >= len(TELLING))
        await client.close()
        text = 'nats: permissions violation for subscription to "{}"'
        assert denied == [text.format(subject.lower()) for subject in TELLING]


async def test_commands_of_others_that_an_agent_has_stored_once_more_are_not_done_again(
    guarded: Guarded, tmp_path: Path
) -> None:
    # given a quota of another organisation that was lowered
    (quota,) = services("quota")
    async with (
        connected(guarded.url) as operator,
        serving(quota, guarded, tmp_path / "one.log"),
    ):
        for id, limit in (("c1", 2), ("c2", 1)):
            command = SetQuota(org="other", zone=ZONE, instance_type=H100, limit=limit)
            await send(operator, command, id)
            await outcome(operator, id)
        agent = await connect(guarded.of(AGENT), "agent", access=OWN_INBOX)

        # when an agent has a consumer deliver the commands to the log
        config = {"name": "again", "ack_policy": "none", "filter_subjects": ["np.cmd.other.>"]}
        body = {"stream_name": STREAM, "config": config}
        await request(agent, f"$JS.API.CONSUMER.CREATE.{STREAM}.again", body)
        pull = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.again"
        await agent.publish(pull, b'{"batch":2}', reply="np.cmd.acme.prod._.Again")
        await until(lambda: repeated(operator, 2))
        await agent.close()

        # then a command after it finds the quota as it was
        await send(operator, SetQuota(org="a", zone=ZONE, instance_type=H100, limit=1), "c3")
        await outcome(operator, "c3")
        subject = "np.evt.quota.other._._.QuotaSet"
        said = [json.loads(e.content) for e in await read_all(operator) if e.subject == subject]
        assert [event["data"]["limit"] for event in said] == [2, 1]


async def repeated(connection: Connection, count: int) -> bool:
    """Whether the log has so many commands of the other organisation twice."""
    log = await read_all(connection)
    return sum(entry.subject == "np.cmd.other._._.SetQuota" for entry in log) == 2 * count


async def test_an_operator_may_examine_back_up_and_restore(
    guarded: Guarded, tmp_path: Path
) -> None:
    async with connected(guarded.url) as connection:
        await connection.flush()

    async def nodepool(*words: str) -> int:
        return await asyncio.to_thread(run, ["--url", guarded.url, *words])

    folder = str(tmp_path / "backup")
    assert await nodepool("backup", folder) == 0
    assert await nodepool("restore", "--force", folder) == 0
    found = await asyncio.to_thread(_examined, guarded.url)
    assert "commands of demo: this user may send them" in found
    assert "cannot be looked at" not in found


def _examined(url: str) -> str:
    command = [sys.executable, "-m", "nodepool.cli", "--url", url, "doctor"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    ).stdout


def test_who_may_not_read_is_told_so_at_once(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a user of the example who may neither read the log nor send this command
    user = LIMITED[0]
    monkeypatch.setenv("NODEPOOL_INBOX_PREFIX", f"_INBOX_{user}")
    address = ("--url", guarded.of(user), "--request-timeout", "20s")

    # when this user reads, and sends a command about another cluster
    read = run([*address, "get", "np"])
    reading = capsys.readouterr().err
    sent = run([*address, "set", "quota", H100, "1", "--zone", ZONE])
    sending = capsys.readouterr().err

    # then the error names the right that the user lacks
    assert (read, sent) == (4, 4)
    assert reading.startswith('error: permission denied for publish to "$js.api.')
    assert sending.startswith('error: permission denied for publish to "')


async def test_a_command_without_the_right_to_it_is_forbidden_and_the_next_one_is_accepted(
    guarded: Guarded, tmp_path: Path
) -> None:
    # given an agent, which may send commands about its cluster only
    (validator,) = services("validator")
    async with (
        connected(guarded.url) as operator,
        serving(validator, guarded, tmp_path / "one.log"),
        ControlPlane(guarded.of(AGENT), org="acme", cluster="prod", access=OWN_INBOX) as agent,
    ):
        # when the agent sends a command about the organisation, and one about its cluster
        forbidden, accepted = await asyncio.gather(
            agent.commands.send(SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=1)),
            agent.commands.send(RegisterCluster(org="acme", cluster="prod", zone=ZONE)),
            return_exceptions=True,
        )

        # then the first is refused by name and is not stored, and the second is accepted
        assert isinstance(forbidden, Refused)
        assert (forbidden.reason, forbidden.field) == ("Forbidden", "")
        assert 'permission denied for publish to "np.cmd.acme._._.setquota"' in str(forbidden)
        assert isinstance(accepted, CommandAccepted)
        log = await read_all(operator)
        commands = {entry.subject for entry in log if entry.subject.startswith("np.cmd.")}
        assert commands == {"np.cmd.acme.prod._.RegisterCluster"}


def test_a_user_without_the_right_to_a_command_sees_the_refusal(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a log, and a user who may read the log and not set quotas
    async def prepare() -> None:
        async with connected(guarded.url):
            pass

    asyncio.run(prepare())
    monkeypatch.setenv("NODEPOOL_INBOX_PREFIX", f"_INBOX_{AGENT}")

    # when this user sets a quota
    arguments = ("set", "quota", H100, "1", "--zone", ZONE, "--org", "acme")
    code = run(["--url", guarded.of(AGENT), *arguments])

    # then the command is refused with the right that the user lacks
    assert code == 1
    assert capsys.readouterr() == (
        "",
        'error: permission denied for publish to "np.cmd.acme._._.setquota" (Forbidden)\n',
    )
