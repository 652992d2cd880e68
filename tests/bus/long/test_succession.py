"""A leader that ends on a quiet log: a follower leads soon, and shows what only a leader shows."""

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from bus.harness import ReplicaProcess, connected, fill, launched, read_all, until
from bus.long.test_takeover import leader_and_follower, ready
from nodepool.client import Client
from nodepool.host.succession import LOOK_S, LOOKS, SILENT_S
from nodepool.local.server import NatsServer
from nodepool.nats.log.api import last_message, request
from nodepool.nats.log.commits import MARK
from nodepool.nats.log.consumers import REPLICA
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from support.constants import H100, ZONE
from testbed.ports import free_port

SOON_S = 60.0
"""How long nothing leads at most once no consumer of the leader is left."""
ASKED_S = SILENT_S + (LOOKS + 1) * LOOK_S
"""After so long a leader that could not be seen would count as gone."""
LIMIT = 7
FOREIGN = [("np.evt.fleet.fleet.X.g1.MachineBooted", b"{}")] * 2_000


def shown(replica: ReplicaProcess) -> float:
    """The limit of a quota, as a replica shows it; 0 where it shows none."""
    return replica.metric("nodepool_quota_limit_nodes")


async def forget_reader(connection: Connection, service: str) -> None:
    """Deletes the consumer of the replica that committed last, as the server does after a while."""
    record = await last_message(connection, STREAM, f"np.commit.{service}")
    assert record is not None
    page = await request(connection, f"$JS.API.CONSUMER.LIST.{STREAM}")
    consumers = page["consumers"]
    assert isinstance(consumers, list)
    (name,) = [
        each["name"]
        for each in consumers
        if each["config"]["metadata"].get(REPLICA) == record.headers[MARK]
    ]
    await request(connection, f"$JS.API.CONSUMER.DELETE.{STREAM}.{name}")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
async def test_the_others_show_what_a_leader_showed_that_has_ended_on_a_quiet_log(
    server: NatsServer, tmp_path: Path, ending: signal.Signals
) -> None:
    with ExitStack() as stack:
        names = ("quota", "aggregator", "aggregator", "aggregator")
        quota, *replicas = (
            stack.enter_context(launched(name, server, tmp_path, free_port())) for name in names
        )
        async with connected(server.url) as connection:
            # given three replicas, of which one leads and shows what is known of a quota
            await ready(quota, *replicas)
            async with Client(server.url, org="acme", cluster="prod") as client:
                await client.quotas.set(ZONE, H100, LIMIT)
            await until(lambda: sorted(map(shown, replicas)) == [0, 0, LIMIT])
            (leading,) = [each for each in replicas if each.metric("nodepool_leading")]
            others = [each for each in replicas if each is not leading]
            before = await read_all(connection)

            # when it ends and nothing else happens, and the server forgets what it read by
            os.kill(leading.pid, ending)
            if ending == signal.SIGKILL:
                await forget_reader(connection, "aggregator")

            # then one of the others shows it
            await until(lambda: sorted(map(shown, others)) == [0, LIMIT], SOON_S)
            assert sorted(each.metric("nodepool_leading") for each in others) == [0, 1]

            # and nothing was stored for it but one commit record
            after = await read_all(connection)
            added = [entry.subject for entry in after[len(before) :]]
            assert added == ["np.commit.aggregator"]


async def test_a_leader_stays_one_however_quiet_it_is_and_by_whatever_it_reads(
    server: NatsServer, tmp_path: Path
) -> None:
    with (
        launched("quota", server, tmp_path, free_port()) as one,
        launched("quota", server, tmp_path, free_port()) as other,
    ):
        async with connected(server.url) as connection:
            # given two replicas of which one leads
            await ready(one, other)
            leading, _ = await leader_and_follower(one, other)
            before = await read_all(connection)

            # when it reads by another consumer each time, and nothing happens for long
            await forget_reader(connection, "quota")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await ready(one, other)
            await fill(connection, FOREIGN)  # So much for others that replicas filter.
            await asyncio.sleep(ASKED_S)

            # then nothing else is stored, and it leads
            after = await read_all(connection)
            assert [each.subject for each in after[len(before) + len(FOREIGN) :]] == []
            assert leading.metric("nodepool_leading") == 1
