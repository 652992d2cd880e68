"""The agent on a real bus, of which it knows little yet."""

import asyncio
import os
from datetime import UTC, datetime

from lightkube.config.kubeconfig import KubeConfig

from agent.actions import Place
from agent.host.commander import Commander
from agent.host.log import LogReader
from agent.host.model import BusModel
from agent.host.registration import Registration
from agent.host.session import Bus
from agent.host.settings import AgentSettings
from agent.host.telemetry import Telemetry
from agent.host.work import Work
from agent.pools.objects import Log
from bus.harness import connected, restart, until
from nodepool.client import Client
from nodepool.client.mirror import LogState, Mirror, mirror_of
from nodepool.contract.conditions import Validated
from nodepool.contract.events import NodePoolValidated
from nodepool.contract.messages import envelope_of
from nodepool.contract.model import NodePoolSpec
from nodepool.host.settings import Settings
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.waiting import cancel
from support.agent.answered import answered
from support.constants import H100

PLACE = Place("acme", "prod", "zone-a")
KUBE_SYSTEM = b'{"metadata": {"uid": "5c1f7a52"}}'


async def nothing(_mirror: Mirror, _log: Log, _state: LogState) -> None:
    """Follows no event."""
    await asyncio.Event().wait()


async def test_an_agent_that_is_not_registered_is_not_ready_after_a_reconnection(
    server: NatsServer,
) -> None:
    # given a bus without services, so that nobody registers the cluster
    config = KubeConfig.from_server("http://127.0.0.1:1").get()
    assert config is not None
    service = Settings(url=server.url, log_file=os.devnull)
    telemetry = Telemetry(service, PLACE, lambda: ())
    model = BusModel(lambda _key: None)
    work = Work(lambda: True)
    commander = Commander(model, LogReader(), work, telemetry.log)
    compared: list[str] = []
    settings = AgentSettings(service, PLACE, config)
    async with connected(server.url), answered(lambda _path: (200, KUBE_SYSTEM)) as api:
        bus = Bus(
            settings,
            telemetry,
            model,
            commander,
            registration=Registration(api, settings.place, telemetry.log),
            resync=lambda: compared.append(bus.obstacle),
            following=nothing,
        )
        running = asyncio.create_task(bus.run())
        await until(lambda: bus.obstacle == "registering the cluster")

        # when the server is lost and found again
        reconnected = asyncio.Event()
        connection = bus._connection
        assert connection is not None
        connection.on_reconnect.append(reconnected.set)
        await restart(server)
        await reconnected.wait()

        # then it is as it was, whether what it had sent was lost or not
        assert bus.obstacle.startswith(("registering the cluster", "the cluster is not reg"))
        assert compared == []
        await cancel(running)
        telemetry.close()


async def test_an_agent_reads_which_commands_a_nodepool_follows_from(server: NatsServer) -> None:
    # given a log with two changes of a NodePool, one of another, and one that cannot be read
    subject = "np.evt.validator.acme.prod.{}.NodePoolValidated".format
    async with (
        connected(server.url) as connection,
        Client(server.url, org="acme", cluster="prod") as client,
    ):
        for id, pool in (("uid.1.new.a", "train"), ("b", "other"), ("uid.2.1.c", "train")):
            await api.publish_event(connection, subject(pool), _validated(id, pool))
        await api.publish_event(connection, subject("train"), b"{}")
        end = await api.last_position(connection, STREAM)

        # when the agent asks for what came after a position
        mirror = mirror_of(client.session, "")
        await mirror.open()
        events = LogReader()
        events.begin(mirror)
        everything = await events.origins_of("train", 0)
        later = await events.origins_of("train", end - 2)
        never = await events.origins_of("none", 0)

    # then it has those of the NodePool in their order
    assert [(each.id, end - each.position) for each in everything] == [
        ("uid.1.new.a", 3),
        ("uid.2.1.c", 1),
        ("", 0),
    ]
    assert later == everything[1:]
    assert never == []
    assert everything[0].uid == "bus-uid"


def _validated(command: str, pool: str) -> bytes:
    event = NodePoolValidated(
        org="acme",
        cluster="prod",
        pool=pool,
        uid="bus-uid",
        zone="zone-a",
        generation=1,
        version=1,
        created=datetime(2026, 1, 1, tzinfo=UTC),
        spec=NodePoolSpec(instance_type=H100, target_nodes=2),
        reason=Validated.VALID,
        message="",
    )
    envelope = envelope_of(NodePoolValidated)(
        id=f"of-{command}",
        type="NodePoolValidated",
        source="validator",
        subject="",
        correlationid=command,
        data=event,
    )
    return envelope.encode()
