"""The read model on a real server: never older than it was, and made again whatever is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from pydantic_core import to_json

from aggregator.decide import SERVICE as AGGREGATOR
from bus.harness import connected, crash, restart, serving, until
from nodepool.client import Client
from nodepool.host.runtime import Runtime
from nodepool.local.server import NatsServer
from nodepool.nats import bus
from nodepool.nats.bus import Connection
from nodepool.nats.reader import Reader
from support.constants import H100, ZONE
from support.services import NAMES, services

API = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool"}
OTHERS = services(*(name for name in NAMES if name != "aggregator"))


def pool(name: str, target: int) -> dict[str, object]:
    spec = {"instanceType": H100, "targetNodes": target}
    return {**API, "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def house(
    server: NatsServer, tmp_path: Path, aggregators: int = 1
) -> AsyncIterator[tuple[Client, Connection, list[Runtime[object]]]]:
    """Every service at work, so many aggregators among them, with a cluster and its machines."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connected(server.url))
        found = []
        for number, service in enumerate([*OTHERS, *[AGGREGATOR] * aggregators]):
            log = tmp_path / f"{service.name}-{number}.log"
            found.append(await stack.enter_async_context(serving(service, server, log)))
        client = Client(server.url, org="acme", cluster="prod", timeout_s=30)
        await stack.enter_async_context(client)
        await client.register_cluster("prod", ZONE)
        await client.set_quota(ZONE, H100, 100)
        await client.add_machines(ZONE, H100, 50)
        yield client, connection, cast("list[Runtime[object]]", found[len(OTHERS) :])


async def stored(connection: Connection) -> dict[tuple[str, str], bytes]:
    """Every row of the read model as it is stored; without those that are gone."""
    found: dict[tuple[str, str], bytes] = {}
    for bucket in AGGREGATOR_BUCKETS:
        reader = Reader(connection, f"KV_{bucket}", [f"$KV.{bucket}.>"], newest=True)
        await reader.open()
        while reader.pending:
            for entry in await reader.next(timeout_s=1):
                key = "/".join(entry.subject.removeprefix(f"$KV.{bucket}.").split(".", 2))
                if entry.content:
                    found[bucket, key] = entry.content
        await reader.close()
    return found


assert AGGREGATOR.rows is not None
AGGREGATOR_BUCKETS = AGGREGATOR.rows.buckets


def known(aggregator: Runtime[object]) -> set[tuple[str, str, str]]:
    """Every row that there should be: bucket, key and version."""
    rows, state = aggregator.service.rows, aggregator.replica.state
    assert rows is not None
    places = [(bucket, key) for bucket in rows.buckets for key in rows.keys(state, bucket)]
    found = [(*place, rows.row(state, *place)) for place in places]
    return {(bucket, key, str(row.version)) for bucket, key, row in found if row is not None}


async def right(connection: Connection, aggregator: Runtime[object]) -> bool:
    """Whether what is stored is what the aggregator knows, no more and no less."""
    try:
        rows = await stored(connection)
    except (bus.InDoubt, bus.ServerRefusal):
        return False
    return {(*place, version(json.loads(content))) for place, content in rows.items()} == known(
        aggregator
    )


def version(document: dict[str, object]) -> str:
    metadata = document.get("metadata", document)
    assert isinstance(metadata, dict)
    return str(metadata["resourceVersion"])


# --- what readers see ---------------------------------------------------------------------------


def test_a_row_is_the_whole_object_with_the_version_of_its_last_change(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with house(server, tmp_path) as (client, connection, (aggregator,)):
            # given a NodePool at its target
            await client.apply(pool("p", 2))
            row = await client.wait("p", "AtTarget", timeout_s=30)

            # when everything is written
            await until(lambda: right(connection, aggregator))

            # then the object is all there, and so are its Nodes, the quota and the machines
            assert row["kind"] == "NodePool"
            found = await stored(connection)
            assert len([key for bucket, key in found if bucket == "nodes"]) == 2
            assert {bucket for bucket, _ in found} == set(AGGREGATOR_BUCKETS)
            entry = await bus.last_of(connection, "KV_nodepools", "$KV.nodepools.acme.prod.p")
            assert entry is not None
            assert entry.headers["Nodepool-Version"] == version(json.loads(entry.content))
            assert to_json(json.loads(entry.content)) == entry.content

    asyncio.run(story())


def test_a_deleted_pool_leaves_a_tombstone_and_is_gone_for_readers(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with house(server, tmp_path) as (client, connection, (aggregator,)):
            # given a NodePool with Nodes
            await client.apply(pool("p", 2))
            await client.wait("p", "AtTarget", timeout_s=30)

            # when it is deleted
            await client.delete("p")
            await client.wait_until_gone("p", timeout_s=30)
            await until(lambda: right(connection, aggregator))

            # then it is gone, and so are its Nodes
            assert await client.get("nodepools", "p") is None
            assert await client.list("nodepools") == []
            assert await client.list("nodes") == []

            # and a mark says so for a while
            entry = await bus.last_of(connection, "KV_nodepools", "$KV.nodepools.acme.prod.p")
            assert entry is not None
            assert entry.headers["KV-Operation"] == "DEL"
            assert entry.headers["Nats-TTL"] == "3600s"

            # and when it is created again it shows
            await client.apply(pool("p", 1))
            row = await client.wait("p", "AtTarget", timeout_s=30)
            assert cast("dict[str, object]", row["spec"])["targetNodes"] == 1

    asyncio.run(story())


# --- what may happen to it ----------------------------------------------------------------------


@pytest.mark.timeout(180)
def test_no_row_ever_goes_back_while_two_aggregators_write_and_one_of_them_dies(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with house(server, tmp_path, aggregators=2) as (client, connection, both):
            # given somebody who watches every write
            seen: dict[str, list[int]] = {}

            async def watch(bucket: str) -> None:
                reader = Reader(connection, f"KV_{bucket}", [f"$KV.{bucket}.>"])
                await reader.open()
                while True:
                    for entry in await reader.next():
                        versions = seen.setdefault(entry.subject, [])
                        versions.append(int(entry.headers["Nodepool-Version"]))

            watching = [asyncio.create_task(watch(bucket)) for bucket in AGGREGATOR_BUCKETS]

            # when NodePools grow, shrink, go and come back, and one aggregator dies amid that
            for number in range(4):
                await client.apply(pool("p", 3 + number % 2))
                await client.apply(pool("q", 1 + number % 2))
                if number == 2:
                    await crash(next(one for one in both if one.replica.state))
                await client.wait("p", "AtTarget", timeout_s=30)
                await client.wait("q", "AtTarget", timeout_s=30)
                await client.delete("q")
                await client.wait_until_gone("q", timeout_s=30)
            survivor = both[1]
            await until(lambda: right(connection, survivor))

            # then no row was ever older than the one it replaced
            for task in watching:
                task.cancel()
            assert len(seen) > 5
            assert all(versions == sorted(versions) for versions in seen.values()), seen

    asyncio.run(story())


def test_a_bucket_that_was_dropped_is_made_again_with_every_row(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with house(server, tmp_path) as (client, connection, (aggregator,)):
            # given NodePools at their target
            for name in ("p", "q"):
                await client.apply(pool(name, 1))
                await client.wait(name, "AtTarget", timeout_s=30)
            await until(lambda: right(connection, aggregator))

            # when their bucket is deleted and set up anew, and one of them changes
            await bus.ask(connection, "$JS.API.STREAM.DELETE.KV_nodepools")
            await bus.provision(connection)
            assert await stored(connection) != {}
            await client.scale("p", 2)

            # then the other is back too
            await until(lambda: right(connection, aggregator))
            assert await client.get("nodepools", "q") is not None

    asyncio.run(story())


def test_rows_that_were_lost_while_nobody_was_there_are_made_again_at_the_start(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        # given rows that were lost after the last aggregator stopped
        async with house(server, tmp_path) as (client, connection, (aggregator,)):
            await client.apply(pool("p", 1))
            await client.wait("p", "AtTarget", timeout_s=30)
            await until(lambda: right(connection, aggregator))
        async with connected(server.url) as connection:
            for bucket in AGGREGATOR_BUCKETS:
                await bus.ask(connection, f"$JS.API.STREAM.DELETE.KV_{bucket}")
            await bus.provision(connection)

            # when one starts, and nothing else happens
            async with serving(AGGREGATOR, server, tmp_path / "again.log") as again:
                # then they are there again
                await until(lambda: right(connection, cast("Runtime[object]", again)))
                assert known(cast("Runtime[object]", again))

    asyncio.run(story())


@pytest.mark.timeout(180)
def test_rows_are_right_again_after_the_server_was_killed_amid_writes(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with house(server, tmp_path) as (client, connection, (aggregator,)):
            for number in range(5):
                # given NodePools that change
                await client.apply(pool("p", 1 + number))

                # when the server is killed, which may lose rows that were not yet on the disk
                await restart(server)

                # then all rows are right soon after, though nothing else may touch them
                async def all_there(count: int = number + 1) -> bool:
                    return len(await client.list("nodes")) == count

                await until(all_there)
                await until(lambda: right(connection, aggregator))

    asyncio.run(story())
