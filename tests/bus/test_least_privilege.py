"""The control plane with one user per service: each has the rights it needs, and no more."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from bus.accounts import CLUSTER, ORG, Guarded, guarded_server
from bus.harness import (
    PATIENCE_S,
    ReplicaProcess,
    launched,
    limit,
    lines_of,
    outcome,
    send,
    serving,
    until,
)
from nodepool.auth.accounts import OPERATOR, PROVISIONER
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.contract.commands import AddMachines
from nodepool.contract.services import FEED, SERVICES
from nodepool.host.opening import UNPROVISIONED, run_feed
from nodepool.host.settings import Settings
from nodepool.nats.log.feed import Feed
from nodepool.nats.log.replicas import is_reading
from nodepool.nats.log.streams import provision
from nodepool.nats.objects.snapshots import stored_position
from nodepool.nats.wire.connection import connect
from support.constants import H100, ZONE
from support.services import services
from testbed.ports import free_port

WITHIN_S = 40
"""How long nine services that start at once may take, in seconds."""
MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": H100, "targetNodes": 2},
}


def start(stack: ExitStack, server: Guarded, folder: Path, name: str) -> ReplicaProcess:
    """Start a service as a process that shows the key of its own user."""
    shown = server.access(name)
    process = launched(
        name,
        server,
        folder,
        free_port(),
        nkey_file=shown.nkey_file,
        inbox_prefix=shown.inbox_prefix,
    )
    return stack.enter_context(process)


async def test_a_node_pool_gets_its_nodes_while_nothing_is_denied_to_any_service(
    tmp_path: Path,
) -> None:
    with guarded_server(tmp_path) as server:
        # given streams that the provisioner has made, and each service as a user of its own
        await server.provision()
        with ExitStack() as stack:
            started = {name: start(stack, server, tmp_path, name) for name in SERVICES}

            # when the operator prepares a cluster and applies a NodePool
            access = server.access(OPERATOR)
            client = Client(server.url, org=ORG, cluster=CLUSTER, timeout_s=WITHIN_S, access=access)
            async with client:
                await client.clusters.register(CLUSTER, ZONE)
                await client.quotas.set(ZONE, H100, 4)
                machines = AddMachines(zone=ZONE, instance_type=H100, count=3)
                await client.commands.send(machines)
                await client.nodepools.apply(MANIFEST)

                # then the NodePool gets what it asks for, and the log is measured
                await client.nodepools.wait("train", "AtTarget", timeout_s=WITHIN_S)
            measured = started["aggregator"]
            await until(lambda: measured.metric("nodepool_log_messages") > 0)

        # and the server has denied nothing
        assert server.violations() == []


async def test_a_service_saves_its_snapshot_begins_there_again_and_looks_for_its_leader(
    tmp_path: Path,
) -> None:
    (quota,) = services("quota")
    with guarded_server(tmp_path) as server:
        await server.provision()
        own = server.access("quota")
        operator = await connect(server.url, "operator", access=server.access(OPERATOR))
        log = await provision(operator)
        for number in (1, 2):
            # given a service that has processed a command
            async with serving(
                quota, server, tmp_path / f"{number}.log", access=own, snapshot_after=1
            ):
                await send(operator, limit(number), f"c{number}")
                await outcome(operator, f"c{number}")

            # when it stops
            # then its snapshot is stored, and the next replica begins there
            assert await stored_position(operator, "quota", log) > 0

        # and it may ask whether another replica still reads
        connection = await connect(server.url, "quota", access=own)
        assert not await is_reading(connection, "another")
        await connection.close()
        await operator.close()
        assert server.violations() == []


async def test_streams_that_are_missing_are_made_by_the_provisioner_and_by_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A service that waited for a reply that never comes would not be ready in time.
    monkeypatch.setattr("nodepool.nats.log.api.REPLY_TIMEOUT_S", 2 * PATIENCE_S)
    (quota,) = services("quota")
    with guarded_server(tmp_path) as server:
        # given a service that starts before there are streams
        own, log = server.access("quota"), tmp_path / "quota.log"
        async with serving(quota, server, log, access=own, wait=False) as runtime:
            await until(lambda: runtime.obstacle() == UNPROVISIONED)

            # when the provisioner makes them
            await server.provision()

            # then the service works soon, with the session that it has begun
            await until(runtime.ready.is_set)
        lines = lines_of(log)
        causes = [line["cause"] for line in lines if line["event"] == "not provisioned"]
        assert causes == [UNPROVISIONED]
        assert not {"session restarts", "bus error"} & {line["event"] for line in lines}

        # and it has tried once to make a stream
        assert len(server.violations()) == 1


async def test_the_reader_of_a_process_of_services_reads_the_log(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        operator = await connect(server.url, "operator", access=server.access(OPERATOR))
        log = await provision(operator)

        # given the reader of a process
        feed, waits = Feed(), list[str]()
        settings = Settings(url=server.url, access=server.access(FEED))
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(run_feed(feed, settings, waits.append))

            # when a command arrives
            await until(lambda: feed.reads(log))
            await send(operator, limit(1), "c1")

            # then it is read, and the server has denied nothing
            await until(lambda: feed.position > 0)
            reading.cancel()
        await operator.close()
        assert waits == []
        assert server.violations() == []


@pytest.mark.parametrize("name", [OPERATOR, PROVISIONER])
async def test_whoever_may_change_streams_provisions_them_again(tmp_path: Path, name: str) -> None:
    with guarded_server(tmp_path) as server:
        await server.provision()
        connection = await connect(server.url, "test", access=server.access(name))
        assert await provision(connection) == await provision(connection)
        await connection.close()
        assert server.violations() == []


async def test_the_operator_examines_backs_up_and_restores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        shown, folder = server.access(OPERATOR), str(tmp_path / "backup")
        monkeypatch.setenv("NODEPOOL_NKEY_FILE", shown.nkey_file)
        monkeypatch.setenv("NODEPOOL_INBOX_PREFIX", shown.inbox_prefix)

        async def nodepool(*words: str) -> int:
            return await asyncio.to_thread(run, ["--url", server.url, *words])

        assert await nodepool("backup", folder) == 0
        assert await nodepool("restore", "--force", folder) == 0
        capsys.readouterr()
        await nodepool("doctor")

    found = capsys.readouterr().out
    assert "commands of demo: this user may send them" in found
    assert "cannot be looked at" not in found
    assert server.violations() == []
