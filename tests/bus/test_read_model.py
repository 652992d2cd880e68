"""The read model on a real server: no object ever goes back, and what is lost is written again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast, get_args

from pydantic_core import to_json

from aggregator.decide import SERVICE as AGGREGATOR
from bus.harness import connected, crash, restart, serving, until
from nodepool.client import Client, Unreachable
from nodepool.host.runtime import Runtime
from nodepool.host.settings import Shown
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import provision
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt, ServerRefusal
from support.constants import H100, ZONE
from support.services import NAMES, services

Aggregator = Runtime[Any, Any, Any]

API = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool"}
OTHERS = services(*(name for name in NAMES if name != "aggregator"))


def pool(name: str, target: int) -> dict[str, object]:
    spec = {"instanceType": H100, "targetNodes": target}
    return {**API, "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def control_plane(
    server: NatsServer, tmp_path: Path, aggregators: int = 1
) -> AsyncIterator[tuple[Client, Connection, list[Aggregator]]]:
    """Every service at work, with so many aggregators, and a cluster with quota and machines."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connected(server.url))
        runtimes = []
        for number, service in enumerate([*OTHERS, *[AGGREGATOR] * aggregators]):
            log = tmp_path / f"{service.name}-{number}.log"
            runtimes.append(await stack.enter_async_context(serving(service, server, log)))
        client = Client(server.url, org="acme", cluster="prod", timeout_s=30)
        await stack.enter_async_context(client)
        await client.clusters.register("prod", ZONE)
        await client.quotas.set(ZONE, H100, 100)
        await client.fleet.add_machines(ZONE, H100, 50)
        yield client, connection, runtimes[len(OTHERS) :]


async def stored(connection: Connection) -> dict[tuple[str, str], bytes]:
    """Every object of the read model as it is stored, by bucket and key; deleted ones left out."""
    objects: dict[tuple[str, str], bytes] = {}
    for bucket in AGGREGATOR_BUCKETS:
        reader = Reader(connection, f"KV_{bucket}", [f"$KV.{bucket}.>"], newest=True)
        await reader.open()
        while reader.pending:
            for entry in await reader.next(timeout_s=1):
                key = "/".join(entry.subject.removeprefix(f"$KV.{bucket}.").split(".", 2))
                if entry.content:
                    objects[bucket, key] = entry.content
        await reader.close()
    return objects


assert AGGREGATOR.projection is not None
AGGREGATOR_BUCKETS = AGGREGATOR.projection.buckets


def expected(aggregator: Aggregator) -> set[tuple[str, str, str]]:
    """Every object that should be stored: bucket, key and version."""
    projection, state = aggregator.service.projection, aggregator.replica.state
    assert projection is not None
    keys = [(b, key) for b in projection.buckets for key in projection.keys(state, b)]
    objects = [(*key, projection.get(state, *key)) for key in keys]
    return {(b, key, str(item.version)) for b, key, item in objects if item is not None}


async def is_right(connection: Connection, aggregator: Aggregator) -> bool:
    """Whether what is stored is what the aggregator's state says, no more and no less."""
    try:
        objects = await stored(connection)
    except (InDoubt, ServerRefusal):
        return False
    versions = {(*key, version(json.loads(content))) for key, content in objects.items()}
    return versions == expected(aggregator)


async def is_listed(client: Client, name: str) -> bool:
    """Whether there is a NodePool of this name."""
    return await client.nodepools.get(name) is not None


def version(document: dict[str, object]) -> str:
    metadata = document.get("metadata", document)
    assert isinstance(metadata, dict)
    return str(metadata["resourceVersion"])


# --- what readers see ---------------------------------------------------------------------------


async def test_a_stored_object_is_complete_and_has_the_version_of_its_last_change(
    server: NatsServer, tmp_path: Path
) -> None:
    async with control_plane(server, tmp_path) as (client, connection, (aggregator,)):
        # given a NodePool at its target
        await client.nodepools.apply(pool("p", 2))
        pool_object = await client.nodepools.wait("p", "AtTarget", timeout_s=30)

        # when everything is written
        await until(lambda: is_right(connection, aggregator))

        # then the NodePool is stored, and so are its Nodes, the quota and the machines
        assert pool_object["kind"] == "NodePool"
        keys = await stored(connection)
        assert len([key for bucket, key in keys if bucket == "nodes"]) == 2
        assert {bucket for bucket, _ in keys} == set(AGGREGATOR_BUCKETS)
        entry = await api.last_message(connection, "KV_nodepools", "$KV.nodepools.acme.prod.p")
        assert entry is not None
        assert entry.headers["Nodepool-Version"] == version(json.loads(entry.content))
        assert to_json(json.loads(entry.content)) == entry.content


async def test_a_deleted_pool_leaves_a_tombstone_and_is_not_listed(
    server: NatsServer, tmp_path: Path
) -> None:
    async with control_plane(server, tmp_path) as (client, connection, (aggregator,)):
        # given a NodePool with Nodes
        await client.nodepools.apply(pool("p", 2))
        await client.nodepools.wait("p", "AtTarget", timeout_s=30)

        # when it is deleted
        await client.nodepools.delete("p")
        await client.nodepools.wait_until_gone("p", timeout_s=30)
        await until(lambda: is_right(connection, aggregator))

        # then it is not listed, and neither are its Nodes
        assert await client.nodepools.get("p") is None
        assert await client.nodepools.list() == []
        assert await client.nodes.list() == []

        # and a tombstone remains for a while
        entry = await api.last_message(connection, "KV_nodepools", "$KV.nodepools.acme.prod.p")
        assert entry is not None
        assert entry.headers["KV-Operation"] == "DEL"
        assert entry.headers["Nats-TTL"] == "3600s"

        # and when it is created again it is listed
        await client.nodepools.apply(pool("p", 1))
        await until(lambda: is_listed(client, "p"))
        again = await client.nodepools.wait("p", "AtTarget", timeout_s=30)
        assert cast("dict[str, object]", again["spec"])["targetNodes"] == 1


# --- what may happen to it ----------------------------------------------------------------------


async def test_no_object_ever_goes_back_while_two_aggregators_write_and_one_crashes(
    server: NatsServer, tmp_path: Path
) -> None:
    async with control_plane(server, tmp_path, aggregators=2) as (client, connection, both):
        # given a reader of every write
        writes: dict[str, list[int]] = {}

        async def watch(bucket: str) -> None:
            reader = Reader(connection, f"KV_{bucket}", [f"$KV.{bucket}.>"])
            await reader.open()
            while True:
                for entry in await reader.next():
                    versions = writes.setdefault(entry.subject, [])
                    versions.append(int(entry.headers["Nodepool-Version"]))

        watching = [asyncio.create_task(watch(bucket)) for bucket in AGGREGATOR_BUCKETS]

        # when NodePools grow, shrink, go and come back, and one aggregator crashes meanwhile
        for number in range(4):
            await client.nodepools.apply(pool("p", 3 + number % 2))
            await client.nodepools.apply(pool("q", 1 + number % 2))
            if number == 2:
                await crash(next(runtime for runtime in both if runtime.replica.state))
            await client.nodepools.wait("p", "AtTarget", timeout_s=30)
            await client.nodepools.wait("q", "AtTarget", timeout_s=30)
            await client.nodepools.delete("q")
            await client.nodepools.wait_until_gone("q", timeout_s=30)
        survivor = both[1]
        await until(lambda: is_right(connection, survivor))

        # then no write was ever older than the one it replaced
        for task in watching:
            task.cancel()
        assert len(writes) > 5
        assert all(versions == sorted(versions) for versions in writes.values()), writes


async def test_a_bucket_that_was_deleted_is_filled_again_with_every_object(
    server: NatsServer, tmp_path: Path
) -> None:
    async with control_plane(server, tmp_path) as (client, connection, (aggregator,)):
        # given NodePools at their target
        for name in ("p", "q"):
            await client.nodepools.apply(pool(name, 1))
            await client.nodepools.wait(name, "AtTarget", timeout_s=30)
        await until(lambda: is_right(connection, aggregator))

        # when their bucket is deleted and created again, and one of them changes
        await api.request(connection, "$JS.API.STREAM.DELETE.KV_nodepools")
        await provision(connection)
        assert await stored(connection) != {}
        await client.nodepools.scale("p", 2)

        # then the other is there again as well
        await until(lambda: is_right(connection, aggregator))
        assert await client.nodepools.get("q") is not None


async def test_objects_that_were_lost_while_no_aggregator_ran_are_written_at_its_start(
    server: NatsServer, tmp_path: Path
) -> None:
    # given objects that were lost after the last aggregator had stopped
    async with control_plane(server, tmp_path) as (client, connection, (aggregator,)):
        await client.nodepools.apply(pool("p", 1))
        await client.nodepools.wait("p", "AtTarget", timeout_s=30)
        await until(lambda: is_right(connection, aggregator))
    async with connected(server.url) as connection:
        for bucket in AGGREGATOR_BUCKETS:
            await api.request(connection, f"$JS.API.STREAM.DELETE.KV_{bucket}")
        await provision(connection)

        # when one starts, and nothing else happens
        async with serving(AGGREGATOR, server, tmp_path / "again.log") as again:
            # then they are there again
            await until(lambda: is_right(connection, again))
            assert expected(again)


async def test_objects_are_right_again_after_the_server_was_killed_during_writes(
    server: NatsServer, tmp_path: Path
) -> None:
    async with control_plane(server, tmp_path) as (client, connection, (aggregator,)):
        for number in range(5):
            # given NodePools that change
            await client.nodepools.apply(pool("p", 1 + number))

            # when the server is killed, which may lose objects that were not yet on the disk
            await restart(server)

            # then all objects are soon right, though no other event may touch them
            async def all_there(count: int = number + 1) -> bool:
                try:
                    return len(await client.nodes.list()) == count
                except Unreachable:
                    return False  # The client connects again soon.

            await until(all_there)
            await until(lambda: is_right(connection, aggregator))


# --- what is shown on request -------------------------------------------------------------------


async def test_deprecated_conditions_are_shown_and_hidden_for_pools_that_exist(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a NodePool, and no aggregator any more
    async with control_plane(server, tmp_path) as (client, connection, (aggregator,)):
        await client.nodepools.apply(pool("p", 1))
        await client.nodepools.wait("p", "AtTarget", timeout_s=30)
        await until(lambda: is_right(connection, aggregator))
    client = Client(server.url, org="acme", cluster="prod")
    async with client:
        for setting in get_args(Shown)[::-1]:
            # when one starts with the other setting, and nothing else happens
            log = tmp_path / f"{setting}.log"
            async with serving(AGGREGATOR, server, log, deprecated_conditions=setting):

                async def follows(wanted: bool = setting == "show") -> bool:
                    conditions = await condition_types(client, "p")
                    return ("Accepted" in conditions) is wanted

                # then the NodePool shows them, or no longer does
                await until(follows)


async def condition_types(client: Client, name: str) -> list[str]:
    """The types of the conditions of a NodePool."""
    document = cast("dict[str, Any]", await client.nodepools.get(name))
    return [condition["type"] for condition in document["status"]["conditions"]]
