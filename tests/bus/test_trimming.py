"""Trimming the log on a real server: nothing goes that anybody needs, and all else does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from archiver.main import Archiver
from bus.archives import archived, archived_to, archiving, as_entry
from bus.harness import connected, fill, limit, outcome, read_all, send, serving, until
from bus.test_doctor import doctor
from nodepool.cli.app import run
from nodepool.contract.log import Entry, LogId
from nodepool.contract.services import SERVICES
from nodepool.engine.replica import Replica
from nodepool.host.runtime import Runtime
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM, StreamInfo, provision, stream_info, streams
from nodepool.nats.log.trimming import trim
from nodepool.nats.objects.snapshots import stored_position
from nodepool.nats.wire.access import NO_ACCESS
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import ServerRefusal
from nodepool.service import AnyService
from support.services import services

SUBJECT = "np.evt.fleet.acme.prod.p.Noted"
EVERY = 20
"""After so many positions a service saves a snapshot, and commits if it is idle."""
AT_ONCE = {"trim_keep_seconds": 1, "trim_keep_bytes": 1, "trim_delay_seconds": 1}
"""Settings with which nothing is kept that nobody needs."""


@asynccontextmanager
async def cell(
    server: NatsServer, folder: Path, names: Sequence[str] = SERVICES
) -> AsyncIterator[list[Runtime]]:  # type: ignore[type-arg]  # Of any state and messages.
    """Services at work."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                serving(service, server, folder / f"{service.name}.log", snapshot_after=EVERY)
            )
            for service in services(*names)
        ]


async def work(connection: Connection, commands: int, start: int = 0) -> None:
    """Have the services do something."""
    for number in range(start, start + commands):
        await send(connection, limit(number), f"c{number}")
    await outcome(connection, f"c{start + commands - 1}")


async def log_of(connection: Connection) -> StreamInfo:
    info = await stream_info(connection, STREAM)
    assert info is not None
    return info


async def begins_after(connection: Connection, position: int, within_s: float = 60) -> int:
    """Return where the log begins once it is trimmed beyond a position."""

    async def is_trimmed() -> bool:
        return (await log_of(connection)).first > position

    await until(is_trimmed, within_s)
    return (await log_of(connection)).first


async def audit(connection: Connection, archive: Path) -> None:
    """Assert that archive and log together hold each position once, and agree where both do."""
    await archived_to(archive, (await log_of(connection)).last)
    rows, hot = archived(archive), await read_all(connection)
    assert [row["position"] for row in rows] == list(range(1, hot[-1].position + 1))
    assert [as_entry(row) for row in rows[hot[0].position - 1 :]] == hot
    assert hot[0].position == (await log_of(connection)).first


@asynccontextmanager
async def trimming(
    connection: Connection, server: NatsServer, archive: Path, folder: Path, **others: int
) -> AsyncIterator[Archiver]:
    """An archiver that trims, started once each service at work has a snapshot for its set.

    Services that hear nothing of what is done have one because the log grows.
    """
    log, numbers = (await log_of(connection)).log, count(10_000, 5)

    async def all_have_snapshots() -> bool:
        stored = [await stored_position(connection, name, log) for name in SERVICES]
        await work(connection, 5, start=next(numbers))
        return all(stored)

    await until(all_have_snapshots)
    settings = {**AT_ONCE, **others}
    log_file = folder / "a.log"
    async with archiving(server, archive, log_file, NO_ACCESS, trims=True, **settings) as archiver:
        yield archiver


def floor_of(archiver: Archiver) -> dict[str, int]:
    """Return where each holder holds the log."""
    return {each.name: each.first for each in archiver._trimming.holders}


@pytest.mark.timeout(120)
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
        for runtime in runtimes:
            assert runtime.replica.safe == replayed(runtime.service, log, entries)


def replayed(service: AnyService, log: LogId, entries: Sequence[Entry]) -> object:
    """Return what a service has folded that reads all messages from the first one on."""
    replica = Replica(service, log=log)
    for entry in entries:
        if service.wants(entry.subject):
            replica.read(entry)
    return replica.safe


# Backups, and logs of early releases.


@pytest.mark.timeout(120)
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


async def test_a_log_of_an_early_release_is_trimmed_once_it_was_backed_up_and_restored(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "backup"
    async with connected(server.url) as connection:
        # given a log as early releases have made it
        config = {**streams()[STREAM], "deny_purge": True}
        await api.request(connection, f"$JS.API.STREAM.DELETE.{STREAM}")
        await api.request(connection, f"$JS.API.STREAM.CREATE.{STREAM}", config)
        log = await provision(connection)
        await fill(connection, [(SUBJECT, b"{}")] * 50)

        # when somebody trims it, then the server refuses, and the doctor names the page
        with pytest.raises(ServerRefusal, match="purge not permitted"):
            await trim(connection, log, 31, 50, None)
        _, report = await doctor(capsys, server.url)
        assert report["trimming"][1].startswith("the log can never be trimmed")

        # when it is backed up and restored
        assert await nodepool(server, "backup", str(folder)) == 0
        assert await nodepool(server, "restore", "--force", str(folder)) == 0

        # then it is the same log, and can be trimmed
        assert await provision(connection) == log
        assert await trim(connection, log, 31, 50, None) == 30
        assert [each.position for each in await read_all(connection)] == list(range(31, 51))
        await fill(connection, [(SUBJECT, b"{}")])
        assert (await log_of(connection)).last == 51


async def dry_run(server: NatsServer, archive: Path) -> int:
    """Return the exit code of `nodepool log trim --dry-run`."""
    options = ("--dry-run", "--archive", str(archive), "--keep-seconds", "1", "--keep-bytes", "1")
    return await nodepool(server, "log", "trim", *options)


async def nodepool(server: NatsServer, *arguments: str) -> int:
    """Return the exit code of a command."""
    return await asyncio.to_thread(run, ["--url", server.url, *arguments])
