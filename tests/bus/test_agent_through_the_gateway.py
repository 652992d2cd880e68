"""The agent with the key that `nodepool auth add-agent` makes, on a server with the accounts."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster as ApiServer
from lightkube.config.models import Context, User

from agent.actions import Place, Send
from agent.host.settings import AgentSettings
from agent.host.telemetry import Telemetry
from agent.host.work import pool_key
from agent.main import Term, lease_of
from agent.pools.sides import NOT_DELETED
from bus.accounts import CLUSTER, ORG, Guarded, guarded_server
from bus.guarded_gateway import MANIFEST, at_work, gateway_process, served
from bus.harness import lines_of, outcomes, read_all, until
from bus.test_agent_recorder import Cluster, say
from contracts.samples import sample
from nodepool.auth.accounts import OPERATOR
from nodepool.client import Client
from nodepool.client.usage import read_agents
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.events import NodeReported
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.host.settings import Settings
from nodepool.host.version import version_of
from nodepool.nats.wire.connection import connect
from nodepool.nats.wire.waiting import cancel
from support.agent.answered import answered
from support.constants import H100, ZONE

PLACE = Place(ORG, CLUSTER, ZONE)
NO_API_SERVER = "http://127.0.0.1:1"
NAMESPACE = b'{"metadata": {"uid": "5c1f7a52"}}'
"""What the agent registers its cluster by."""
POOLS = 12
MANY = 300


@asynccontextmanager
async def agent_at(server: Guarded, folder: Path, progress: str = "") -> AsyncIterator[Term]:
    """An agent at work with its own key, beside an API server that tells only who it is."""
    settings = Settings(
        server.url, log_file=str(folder / "agent.log"), access=server.access("agent")
    )
    telemetry = Telemetry(settings, PLACE, lambda: ())
    kubeconfig = SingleConfig(
        "none", Context("none", "none"), ApiServer(NO_API_SERVER), User(token="none")
    )
    async with answered(lambda _path: (200, NAMESPACE)) as api:
        agent = AgentSettings(settings, PLACE, kubeconfig)
        lease = lease_of(agent, api, telemetry.log)
        lease.progress = progress
        term = Term(agent, api, lease, telemetry)
        working = asyncio.create_task(term.bus.run())
        try:
            await until(lambda: not term.bus.obstacle or working.done())
            yield term
        finally:
            await cancel(working)
            telemetry.close()


def warnings(log: Path) -> list[object]:
    """The lines of a log that are no mere information, and say more than that a gateway is late.

    A busy machine may keep a gateway waiting for longer than an agent waits for it.
    """
    lines = [line for line in lines_of(log) if line["level"] not in ("debug", "info")]
    return [line for line in lines if line["event"] != "gateway lost"]


async def test_all_that_the_agent_does_it_may_do_and_it_needs_the_gateway_alone(
    tmp_path: Path,
) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        editor = Client(server.url, org=ORG, cluster=CLUSTER, access=server.access("editor"))
        async with at_work(server, tmp_path, "validator", "aggregator"):
            # when the agent is at work: it registers its cluster, reads its objects and events
            async with agent_at(server, tmp_path) as term, editor:
                log = term.bus.model.log
                await editor.nodepools.apply(MANIFEST)
                await until(lambda: "train" in term.bus.model.pools)

                # and an operator asks which agents work
                async with Client(server.url, access=server.access(OPERATOR)) as operator:
                    assert await read_agents(operator.session) == {"acme/prod": version_of()}

                # and it reports, and asks the log
                report = sample(NodeReported, org=ORG, cluster=CLUSTER, pool="train")
                await term.bus.publish(report)
                end = await term.bus.log.newest_position()
                assert await term.bus.log.deletion_of("train") == NOT_DELETED
                assert not await term.bus.log.has_ended("n1", 1, 1, lambda: 1)
                assert (await term.bus.log.origins_of("train", 0))[0].uid != ""

            # and where another history of the log was recorded before
            assert log is not None
            async with agent_at(server, tmp_path, f"{log.id}:{end}:0") as term:
                await until(lambda: term.recorder.recorded == "")

            # then its report is stored as its own
            connection = await connect(server.url, "test", access=server.access(OPERATOR))
            stored = [
                json.loads(each.content)
                for each in await read_all(connection)
                if each.subject.endswith(".NodeReported")
            ]
            await connection.close()
        assert [each["actor"].split(";")[:3] for each in stored] == [[ORG, "agent", "agent"]]

        # and nothing was refused to it, by the server or by the gateway
        assert server.violations() == []
        assert warnings(tmp_path / "agent.log") == []


def send_command(term: Term, number: int) -> None:
    """Has the agent send a command about a NodePool of its own."""
    name = f"pool-{number}"
    command = ApplyNodePool(
        org=ORG,
        cluster=CLUSTER,
        pool=name,
        metadata=ManifestMetadata(name=name),
        spec=NodePoolSpec(instance_type=H100, target_nodes=0),
    )
    term.bus.commander.send(pool_key(name), Send(f"id-{number}", command))


def is_accepted(term: Term, number: int) -> bool:
    """Whether the agent knows that this command is accepted."""
    now = asyncio.get_running_loop().time()
    sent = term.bus.commander.attempt(pool_key(f"pool-{number}"), now)
    return sent is not None and sent.outcome == "accepted"


async def test_the_outcomes_of_many_commands_at_a_time_end_no_session(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(server, tmp_path, "validator", "aggregator"),
            agent_at(server, tmp_path) as term,
        ):
            # when pages of the log are asked for while others are on their way
            for number in range(MANY):
                send_command(term, number)

            # then none is mistaken for one of a log that was set back
            await until(lambda: all(is_accepted(term, number) for number in range(MANY)))
    assert warnings(tmp_path / "agent.log") == []


async def test_a_gateway_that_is_killed_loses_no_command_of_the_agent_and_doubles_none(
    tmp_path: Path,
) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with served(server, tmp_path, "validator", "aggregator"):
            # given an agent at work through a gateway
            with gateway_process(server, tmp_path) as gateway:
                async with agent_at(server, tmp_path) as term:
                    send, is_done = partial(send_command, term), partial(is_accepted, term)

                    # when the gateway is killed while commands are on their way, and runs again
                    for number in range(POOLS // 2):
                        send(number)
                    await until(lambda: is_done(0))
                    gateway.process.kill()
                    for number in range(POOLS // 2, POOLS):
                        send(number)
                    await until(lambda: "does not respond" in term.bus.obstacle)
                    with gateway_process(server, tmp_path):
                        await until(lambda: all(map(is_done, range(POOLS))))
                        await until(lambda: len(term.bus.model.pools) == POOLS)
                        await until(lambda: not term.bus.obstacle)

            # then each command is done, and done once
            connection = await connect(server.url, "test", access=server.access(OPERATOR))
            done, events = await outcomes(connection), await read_all(connection)
            await connection.close()
        assert {id: done[id] for id in done if id.startswith("id-")} == {
            f"id-{number}": ["CommandAccepted"] for number in range(POOLS)
        }
        changed = Counter(each.subject for each in events if "NodePoolValidated" in each.subject)
        assert set(changed.values()) == {1}


async def test_a_gateway_that_is_killed_leaves_each_event_recorded_once(tmp_path: Path) -> None:
    cluster = Cluster()
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        connection = await connect(server.url, "test", access=server.access("validator"))
        async with served(server, tmp_path, "validator", "aggregator"):
            access = server.access("agent")
            with gateway_process(server, tmp_path) as gateway:
                async with cluster.followed(connection, server.url, access):
                    # when events come before, while and after no gateway runs
                    await say(connection, "first")
                    await until(lambda: cluster.events == ["first"])
                    gateway.process.kill()
                    await say(connection, "meanwhile")
                    with gateway_process(server, tmp_path):
                        await say(connection, "after")
                        await until(lambda: len(cluster.events) == 3)
        await connection.close()

    # then each is recorded, and recorded once
    assert cluster.events == ["first", "meanwhile", "after"]
