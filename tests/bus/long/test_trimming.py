"""A log that is trimmed for long, by archivers that are killed, or backed up."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from archiver.main import Archiver
from bus.archives import (
    SMALL,
    archived,
    archived_to,
    archiving,
    as_entry,
    launched_archiver,
)
from bus.harness import (
    connected,
    read_all,
    until,
)
from bus.test_trimming import (
    AT_ONCE,
    begins_after,
    cell,
    floor_of,
    let_all_save,
    log_of,
    nodepool,
    work,
)
from nodepool.contract.log import Entry, LogId
from nodepool.contract.services import SERVICES
from nodepool.engine.replica import Replica
from nodepool.local.server import NatsServer
from nodepool.nats.wire.access import NO_ACCESS
from nodepool.nats.wire.connection import Connection
from nodepool.service import AnyService
from support.audit.auditor import violations


async def audit(connection: Connection, archive: Path) -> None:
    """Assert that archive and log together hold each position once, and agree where both do."""
    hot, first = await read_all(connection), (await log_of(connection)).first
    last = hot[-1].position  # Services may commit meanwhile.
    await archived_to(archive, last)
    rows = archived(archive)[:last]
    assert [row["position"] for row in rows] == list(range(1, last + 1))
    assert [as_entry(row) for row in rows[hot[0].position - 1 :]] == hot
    assert hot[0].position == first


@asynccontextmanager
async def trimming(
    connection: Connection, server: NatsServer, archive: Path, folder: Path, **others: int
) -> AsyncIterator[Archiver]:
    """An archiver that trims, started once each service at work has a snapshot for its set."""
    await let_all_save(connection)
    settings = {**AT_ONCE, **others}
    log_file = folder / "a.log"
    async with archiving(server, archive, log_file, NO_ACCESS, trims=True, **settings) as archiver:
        yield archiver


async def test_a_trimmed_log_and_its_archive_have_every_message_and_services_begin_again(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    async with connected(server.url) as connection:
        # given all services at work, and an archiver that trims
        async with (
            cell(server, tmp_path),
            trimming(connection, server, archive, tmp_path) as archiver,
        ):
            await work(connection, 60, start=100)

            # when nobody needs the beginning of the log any more
            first = await begins_after(connection, 1)

            # then the log begins where its floor is, and the archive has the rest
            assert first <= min(floor_of(archiver).values())
            assert set(floor_of(archiver)) == {*SERVICES, "archive", "snapshot set", "age", "size"}
            await audit(connection, archive)

            # and the operator sees who holds it
            capsys.readouterr()
            assert await dry_run(server, archive) == 0
            said = capsys.readouterr().out
            assert [line for line in said.splitlines() if line.startswith("snapshot set ")]
            assert f"the log has positions {first} to " in said

        # and services that start now go on with the state that all messages make
        async with cell(server, tmp_path) as runtimes:
            await work(connection, 5, start=2_000)
        async with archiving(server, archive, tmp_path / "b.log"):
            await audit(connection, archive)
        entries = [as_entry(row) for row in archived(archive)]
        log = (await log_of(connection)).log
        assert violations(entries) == []
        for runtime in runtimes:
            assert runtime.replica.safe == replayed(runtime.service, log, entries)


def replayed(service: AnyService, log: LogId, entries: Sequence[Entry]) -> object:
    """Return what a service has folded that reads all messages from the first one on."""
    replica = Replica(service, log=log)
    for entry in entries:
        if service.wants(entry.subject):
            replica.read(entry)
    return replica.safe


async def test_two_archivers_that_trim_at_once_and_are_killed_lose_no_message(
    server: NatsServer, tmp_path: Path
) -> None:
    archive, chance = tmp_path / "archive", random.Random(11)
    numbers, trims = {**AT_ONCE, "segment_bytes": SMALL}, {"NODEPOOL_TRIM": "on"}
    async with connected(server.url) as connection, cell(server, tmp_path) as runtimes:
        await let_all_save(connection)
        launch = partial(launched_archiver, server, archive, tmp_path, trims, **numbers)
        begins = 1
        with launch():
            # given two archivers that trim, of which one is killed again and again under load
            for number in range(3):
                await let_all_save(connection, beyond=begins)
                for made in archive.glob("sets/*.json"):
                    made.unlink()  # The next archiver makes another one, as on the next day.
                with launch() as other:
                    await work(connection, 40, start=100_000 + 40 * number)
                    begins = await begins_after(connection, begins)
                    await asyncio.sleep(chance.random())
                    other.process.kill()
            # when all is done, then archive and log have each message once
            await audit(connection, archive)

        # and the services have the state that all messages make
        await until(lambda: all(not runtime.replica.open for runtime in runtimes))
        assert [each.obstacle() for each in runtimes] == [None] * len(runtimes)


async def test_a_trimmed_log_is_backed_up_with_what_services_need_and_restored(
    server: NatsServer, tmp_path: Path
) -> None:
    archive, folder = tmp_path / "archive", tmp_path / "backup"
    async with connected(server.url) as connection:
        # given a log that was trimmed
        async with (
            cell(server, tmp_path),
            trimming(connection, server, archive, tmp_path),
        ):
            await work(connection, 60, start=100)
            await begins_after(connection, 1)
        before, info = await read_all(connection), await log_of(connection)

        # when it is backed up, and restored in place of what is there
        assert await nodepool(server, "backup", str(folder)) == 0
        assert await nodepool(server, "restore", "--force", str(folder)) == 0

        # then the log is as it was, and services begin with their snapshots and go on
        assert await read_all(connection) == before
        assert (await log_of(connection)).log == info.log
        async with cell(server, tmp_path):
            await work(connection, 5, start=2_000)

        # and so does the archive
        async with archiving(server, archive, tmp_path / "b.log"):
            await audit(connection, archive)


async def dry_run(server: NatsServer, archive: Path) -> int:
    """Return the exit code of `nodepool log trim --dry-run`."""
    options = ("--dry-run", "--archive", str(archive), "--keep-seconds", "1", "--keep-bytes", "1")
    return await nodepool(server, "log", "trim", *options)
