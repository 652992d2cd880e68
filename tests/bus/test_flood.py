"""Commands of one sender by the thousand: what they may keep others waiting for.

`FLOOD=100000` in the environment makes the flood larger than the suite has time for.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bus.harness import BINARY, connected, limit, outcome, outcomes, read_all, send, serving, until
from bus.test_client import CLUSTER, ZONE, opened
from nodepool.client import Refused
from nodepool.contract.commands import RegisterCluster
from nodepool.contract.events import CommandAccepted, CommandRefused, RefusalReason
from nodepool.contract.log import Entry
from nodepool.contract.messages import Event, PoolFields, envelope_of
from nodepool.contract.subjects import address_of, subject_of
from nodepool.engine.waiting import TOO_MANY
from nodepool.host.runtime import Runtime
from nodepool.local.config import QUEUE_MAX
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Busy
from nodepool.service import I, O, S
from quota.decide import SERVICE as QUOTA
from testbed.ports import free_port
from validator.decide import SERVICE as VALIDATOR

FLOOD = int(os.environ.get("FLOOD", "12000"))
FLUSH_S = 60


async def flood(url: str) -> None:
    """Commands of one organisation, sent without waiting for any acknowledgement, all at once."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    content = b'{"specversion":"1.0","id":"%d"}'
    published = (
        b"PUB np.cmd.evil.prod.p%d.DeleteNodePool %d\r\n%s\r\n" % (number, len(text), text)
        for number in range(FLOOD)
        for text in (content % number,)
    )
    writer.write(b'CONNECT {"verbose":false}\r\n' + b"".join(published) + b"PING\r\n")
    async with asyncio.timeout(FLUSH_S):
        while await reader.readline() != b"PONG\r\n":
            pass
    writer.close()


async def store(connection: Connection, number: int) -> tuple[datetime, int]:
    """When the server certainly had a message, and the position at which it stored it."""
    subject = f"np.cmd.acme._._.Other{number}"
    while True:
        publishing = api.publish(connection, subject, b"{}", timeout_s=FLUSH_S)
        storing = asyncio.create_task(publishing)
        # The message may follow the first ping, and is ahead of the second.
        await connection.flush()
        await connection.flush()
        arrived = datetime.now(UTC)
        with suppress(Busy):
            return arrived, await storing


async def test_a_flood_keeps_nobody_waiting_for_more_than_the_server_may_hold(
    server: NatsServer,
) -> None:
    # given a connection of another sender
    async with connected(server.url) as connection:
        # when one sends without waiting for acknowledgements, as fast as it can
        flooding = asyncio.create_task(flood(server.url))
        others: list[tuple[datetime, int]] = []
        while not flooding.done():
            others.append(await store(connection, len(others)))
        await flooding
        log = await read_all(connection)

    # then no message of another waits for many more than the server may hold at a time
    passed = [
        sum(arrived < each.time and each.position < position for each in log)
        for arrived, position in others
    ]
    assert max(passed) <= 2 * QUEUE_MAX


async def test_a_flood_is_answered_and_the_command_of_another_organisation_is_processed(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        opened(server, timeout_s=FLUSH_S) as (client, connection),
        serving(VALIDATOR, server, tmp_path / "log"),
    ):
        # given a flood of unacknowledged commands of one organisation
        flooding = asyncio.create_task(flood(server.url))

        # when another organisation sends one meanwhile
        assert (await client.clusters.register(CLUSTER, ZONE)).result == "created"
        await flooding

        # then each command of the flood that was stored gets its one outcome
        log = await read_all(connection)
        stored = sum(entry.subject.startswith("np.cmd.evil.") for entry in log)
        reader = Reader(connection, STREAM, ["np.evt.validator.evil.*.*.CommandRefused"])
        await reader.open()
        async with asyncio.timeout(FLUSH_S):
            refused = 0
            while refused < stored:
                refused += len(await reader.next())
        await reader.close()
        by_id = await outcomes(connection)
        of_flood = [kinds for id, kinds in by_id.items() if id.isdecimal()]
        assert of_flood == [["CommandRefused"]] * stored


def refused_commits(runtime: Runtime[S, I, O]) -> float:
    """How many commits of a service the server has refused."""
    labels = {"nodepool_service": runtime.service.name, "result": "failed"}
    registry = runtime.telemetry.metrics.page.registry
    return registry.get_sample_value("nodepool_commits_total", labels) or 0


async def test_a_commit_that_finds_the_queue_of_the_server_full_is_stored_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server that holds fewer messages than many commits have, and is filled by others
    monkeypatch.setattr("nodepool.local.config.QUEUE_MAX", 5)

    with NatsServer(tmp_path / "nats", free_port(), BINARY) as server:
        async with (
            connected(server.url) as connection,
            serving(QUOTA, server, tmp_path / "log") as runtime,
        ):
            sent: list[str] = []
            while not refused_commits(runtime):
                flooding = asyncio.create_task(flood(server.url))
                # when a service has commands to process meanwhile, until a commit is refused
                while not flooding.done():
                    with suppress(Busy):
                        await send(connection, limit(len(sent)), f"c{len(sent)}")
                        sent.append(f"c{len(sent)}")
                await flooding

            # then each is done once, and the service is ready
            await outcome(connection, sent[-1])
            by_command = await outcomes(connection)
            once = {id: set(names) for id, names in by_command.items()}
            assert once == {id: {"CommandAccepted"} for id in sent}
            log = await read_all(connection)
            assert sum(entry.subject.endswith(".QuotaSet") for entry in log) == len(sent)
            await until(runtime.is_ready)


# How a client takes it.


@asynccontextmanager
async def answering(connection: Connection, *reasons: RefusalReason) -> AsyncIterator[list[str]]:
    """Refuses the first commands for these reasons, and accepts the next; the ids of all."""
    seen: list[str] = []
    reader = Reader(connection, STREAM, ["np.cmd.*.*.*.*"])
    await reader.open()

    async def answer(entry: Entry) -> None:
        address = address_of(entry.subject)
        assert address is not None
        org, cluster, pool = address.path
        of: PoolFields = {"org": org, "cluster": cluster, "pool": pool}
        name = address.name
        id = envelope_of(RegisterCluster).model_validate_json(entry.content).id
        event: Event = CommandAccepted(**of, command=name, result="done")
        if len(seen) < len(reasons):
            event = CommandRefused(
                **of, command=name, reason=reasons[len(seen)], field="", message="full"
            )
        seen.append(id)
        envelope = envelope_of(type(event)).model_construct(
            id=f"o{len(seen)}", type=type(event).__name__, source="x", correlationid=id, data=event
        )
        await api.publish(connection, subject_of(event, "validator"), envelope.encode())

    async def run() -> None:
        while True:
            for entry in await reader.next():
                await answer(entry)

    task = asyncio.create_task(run())
    try:
        yield seen
    finally:
        task.cancel()
        await reader.close()


async def test_a_client_sends_a_command_again_that_was_one_too_many(server: NatsServer) -> None:
    async with (
        opened(server, timeout_s=30) as (client, connection),
        answering(connection, TOO_MANY, TOO_MANY) as seen,
    ):
        assert (await client.clusters.register(CLUSTER, ZONE)).result == "done"
    assert len(seen) == len(set(seen)) == 3


async def test_a_client_says_that_there_were_too_many_once_its_time_is_up(
    server: NatsServer,
) -> None:
    async with (
        opened(server, timeout_s=2) as (client, connection),
        answering(connection, *[TOO_MANY] * 100),
    ):
        with pytest.raises(Refused, match=r"^full \(TooManyRequests\)$"):
            await client.clusters.register(CLUSTER, ZONE)


async def test_a_client_does_not_send_again_what_is_wrong(server: NatsServer) -> None:
    async with (
        opened(server, timeout_s=30) as (client, connection),
        answering(connection, "Invalid") as seen,
    ):
        with pytest.raises(Refused, match="Invalid"):
            await client.clusters.register(CLUSTER, ZONE)
    assert len(seen) == 1
