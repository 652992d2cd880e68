"""Whoever was away for longer than deletions are marked learns of them all the same."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from bus.gate import Gate, gate_to
from bus.harness import PATIENCE_S, connected, until
from nodepool.client import Client
from nodepool.client.objects import Listed, Object
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import stream_info
from nodepool.nats.objects import following
from nodepool.nats.objects.following import objects_reader
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import StreamChanged

BUCKET = "KV_nodepools"
MARK = {"KV-Operation": "DEL", "Nats-TTL": "1s"}
MARKED_S = 1.0


@pytest.fixture(autouse=True)
def _marks_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have deletions marked for a second only, in place of an hour."""
    monkeypatch.setattr(following, "AWAY_MAX_S", MARKED_S)


async def put(connection: Connection, name: str) -> None:
    """Store a NodePool of the read model."""
    content = json.dumps({"metadata": {"name": name}}).encode()
    await api.publish(connection, f"$KV.nodepools.demo.demo.{name}", content)


async def count(connection: Connection) -> int:
    """Return how many messages the bucket holds."""
    info = await stream_info(connection, BUCKET)
    assert info is not None
    return info.messages


@asynccontextmanager
async def two_pools(server: NatsServer) -> AsyncIterator[tuple[Connection, Gate]]:
    """A bucket with the NodePools `kept` and `gone`, and a gate to its server."""
    async with connected(server.url) as connection, gate_to(server.url) as gate:
        for name in ("kept", "gone"):
            await put(connection, name)
        yield connection, gate


async def delete_behind(gate: Gate, connection: Connection) -> None:
    """Delete a NodePool while the gate is shut, until the mark of that is gone too."""
    gate.shut()
    await api.publish(connection, "$KV.nodepools.demo.demo.gone", b"", headers=MARK)

    async def is_forgotten() -> bool:
        return await count(connection) == 1

    await until(is_forgotten)
    await asyncio.sleep(MARKED_S)
    gate.open()


async def test_a_reader_of_objects_that_was_away_for_too_long_says_so(server: NatsServer) -> None:
    async with two_pools(server) as (connection, gate):
        # given a program at the edge that has read all objects
        far = await connect(gate.url, "far", patience_s=PATIENCE_S)
        log, info = await stream_info(far, "NODEPOOL"), await stream_info(far, BUCKET)
        assert log is not None
        assert info is not None
        reader = objects_reader(far, "nodepools", "$KV.nodepools.>", log.log, info)
        await reader.open()
        found = await reader.next(PATIENCE_S)

        # when an object is deleted and forgotten while it is away
        await delete_behind(gate, connection)

        # then it is told to read everything anew
        with pytest.raises(StreamChanged, match="deletions in KV_nodepools may have been missed"):
            await reader.next(PATIENCE_S)
        assert len(found) == 2
        await reader.close()
        await far.close()


async def test_a_reader_that_missed_nothing_goes_on(server: NatsServer) -> None:
    async with two_pools(server) as (connection, gate):
        far = await connect(gate.url, "far", patience_s=PATIENCE_S)
        log, info = await stream_info(far, "NODEPOOL"), await stream_info(far, BUCKET)
        assert log is not None
        assert info is not None
        reader = objects_reader(far, "nodepools", "$KV.nodepools.>", log.log, info)
        await reader.open()
        await reader.next(PATIENCE_S)

        # when it is away for as long, and nothing is written meanwhile
        gate.shut()
        await asyncio.sleep(2 * MARKED_S)
        gate.open()
        await until(lambda: reader.away_s < MARKED_S)

        # then it reads on
        await put(connection, "new")
        (entry,) = await reader.next(PATIENCE_S)
        assert entry.subject == "$KV.nodepools.demo.demo.new"
        await reader.close()
        await far.close()


async def test_a_watch_of_a_client_that_was_away_for_too_long_tells_what_is_gone(
    server: NatsServer,
) -> None:
    async with two_pools(server) as (connection, gate):
        # given a client that watches all NodePools
        async with (
            Client(gate.url, org="demo", cluster="demo", timeout_s=PATIENCE_S) as client,
            aclosing(client.nodepools.watch()) as changes,
        ):
            seen = [await anext(changes) for _ in range(3)]

            # when one is deleted and forgotten while it is away, and another one is made later
            await delete_behind(gate, connection)
            await put(connection, "new")
            async with asyncio.timeout(PATIENCE_S):
                later = list[Object]()
                while not {"new", "gone"} <= {each.key for each in later}:
                    change = await anext(changes)
                    assert not isinstance(change, Listed)
                    later.append(change)

        # then it hears of both, and that the list is complete only once
        assert [each.key for each in seen if isinstance(each, Object)] == ["kept", "gone"]
        assert seen[2] == Listed()
        assert [each.key for each in later if each.document is None] == ["gone"]


async def test_a_client_that_waits_for_a_deletion_learns_of_one_that_it_missed(
    server: NatsServer,
) -> None:
    async with (
        two_pools(server) as (connection, gate),
        Client(gate.url, org="demo", cluster="demo", timeout_s=PATIENCE_S) as client,
    ):
        # given a client that waits until a NodePool is gone
        waiting = asyncio.create_task(client.nodepools.wait_until_gone("gone"))
        await asyncio.sleep(MARKED_S / 2)

        # when it is deleted and forgotten while the client is away
        await delete_behind(gate, connection)

        # then the client knows once it is back
        async with asyncio.timeout(PATIENCE_S):
            await waiting
