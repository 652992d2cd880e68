"""A real server whose disk is full: nothing is lost, and it stores again when there is room.

The disk is a file system in memory of some megabytes, which only an administrator can mount.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator.decide import SERVICE as AGGREGATOR
from bus.harness import BINARY, connected, limit, outcome, outcomes, send, serving, until
from bus.test_runtime import ALARM
from nodepool.contract.metrics import STORAGE_USED_BYTES
from nodepool.host.exposition import Wanted
from nodepool.host.hosting import AnyRuntime
from nodepool.local.server import NatsServer
from nodepool.local.supervisor import keep_storing
from nodepool.nats.log import api
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt, ServerRefusal
from quota.decide import SERVICE as QUOTA
from support.disks import MEGABYTES
from testbed.ports import free_port

SUBJECT = "np.cmd.a.b.c.D"


@asynccontextmanager
async def stored_on(disk: Path) -> AsyncIterator[NatsServer]:
    """A server with its data on this disk, kept as `nodepool up` keeps it."""
    with NatsServer(disk / "nats", free_port(), BINARY) as server:
        keeping = asyncio.create_task(keep_storing(server))
        try:
            yield server
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])


async def stores(connection: Connection) -> bool:
    """Whether the server stores a message."""
    try:
        await api.publish(connection, SUBJECT, b"x" * 1_000, timeout_s=1)
    except (InDoubt, ServerRefusal):
        return False
    return True


async def test_a_disk_that_others_have_filled_heals_when_there_is_room(
    disk: Path, tmp_path: Path
) -> None:
    async with (
        stored_on(disk) as server,
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "quota.log") as runtime,
    ):
        # given a service at work, and another program that fills the disk
        await send(connection, limit(1), "c1")
        await outcome(connection, "c1")
        pid = server.pid
        filling = disk / "filling"
        fill(filling)

        # when a command is sent, then it is not stored, and the service lives on
        await until(lambda: not_stored(connection))
        sending = asyncio.create_task(send(connection, limit(2), "c2"))
        assert await not_stored(connection)
        assert not sending.done()
        assert runtime.replica.committed > 0

        # and when there is room again
        filling.unlink()

        # then the command is stored and processed, by the same server
        await sending
        assert (await outcome(connection, "c2"))["type"] == "CommandAccepted"
        assert server.pid == pid
        assert set(await outcomes(connection)) == {"c1", "c2"}


def fill(path: Path) -> None:
    """Writes a file that leaves no room beside it."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4_096))


async def not_stored(connection: Connection) -> bool:
    return not await stores(connection)


async def test_a_server_refuses_before_its_own_data_has_filled_the_disk(
    disk: Path, tmp_path: Path
) -> None:
    async with (
        stored_on(disk) as server,
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "quota.log"),
        serving(ALARM, server, tmp_path / "alarm.log") as alarm,
    ):
        # given a service that is to be woken, and a log that has grown until it is full
        pid, session = server.pid, alarm.replica
        await send(connection, limit(3_000), "c0")
        await fill_the_log(connection)
        sending = asyncio.create_task(send_until_stored(connection, "c1"))
        with pytest.raises(ServerRefusal, match="insufficient resources"):
            await api.publish(connection, SUBJECT, b"")
        await until(lambda: is_overdue(alarm.replica.due()))

        # when the disk grows
        grow = ["mount", "-o", f"remount,size={2 * MEGABYTES}m", str(disk)]
        await asyncio.to_thread(subprocess.run, grow, check=True)

        # then commands are stored and processed, by the same server
        await sending
        assert (await outcome(connection, "c1"))["type"] == "CommandAccepted"
        assert server.pid == pid

        # and the service is woken, which has gone on all the time
        await until(lambda: alarm.replica.due() is None)
        assert alarm.replica is session


async def test_a_service_that_begins_on_a_full_disk_shows_that_it_is_full(
    disk: Path, tmp_path: Path
) -> None:
    async with stored_on(disk) as server, connected(server.url) as connection:
        # given a log that has grown until it is full
        await fill_the_log(connection)

        # when the service begins that watches the storage, and cannot commit
        async with serving(AGGREGATOR, server, tmp_path / "a.log", wait=False) as runtime:
            # then its metrics show how much is stored
            await until(lambda: stored_bytes(runtime) > 0)
            assert not runtime.replica.committed


def stored_bytes(runtime: AnyRuntime) -> float:
    """How much is stored, as the page of metrics shows it; 0 where it does not."""
    pieces = runtime.telemetry.metrics.page.pieces(Wanted())
    assert pieces is not None
    families = text_string_to_metric_families(b"".join(pieces).decode())
    samples = (sample for family in families for sample in family.samples)
    return sum(each.value for each in samples if each.name == STORAGE_USED_BYTES.name)


async def fill_the_log(connection: Connection) -> None:
    """Stores messages until the server refuses one; that its reply is late is no refusal."""
    with suppress(ServerRefusal):
        while True:
            with suppress(InDoubt):
                await api.publish(connection, SUBJECT, b"x" * 500_000)


def is_overdue(due: datetime | None) -> bool:
    """Whether something should have happened a while ago."""
    return due is not None and due + timedelta(seconds=1) < datetime.now(UTC)


async def send_until_stored(connection: Connection, id: str) -> None:
    while True:
        try:
            return await send(connection, limit(3), id)
        except ServerRefusal:
            await asyncio.sleep(0.1)
