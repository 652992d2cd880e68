"""Trimming the log on a real server: nothing goes that anybody needs, and all else does."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from archiver.main import Archiver
from bus.accounts import guarded_server
from bus.archives import (
    archived_to,
    archiving,
)
from bus.guarded_gateway import user
from bus.harness import (
    connected,
    fill,
    launched,
    limit,
    outcome,
    read_all,
    restart,
    send,
    serving,
    until,
)
from bus.test_archiver import flip_a_bit
from bus.test_doctor import doctor
from bus.test_process_life import says
from nodepool.auth.accounts import ARCHIVER, GATEWAY, OPERATOR, PROVISIONER
from nodepool.cli.app import run
from nodepool.contract.log import LogId
from nodepool.contract.services import FEED, SERVICES
from nodepool.host.runtime import Runtime
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM, StreamInfo, provision, stream_info, streams
from nodepool.nats.log.trimming import trim
from nodepool.nats.objects.snapshots import stored_position
from nodepool.nats.wire.access import NO_ACCESS
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Denied, LogChanged, ServerRefusal
from support.services import services
from testbed.ports import free_port

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
        await send(connection, limit(number % 1_000), f"c{number}")
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


async def let_all_save(connection: Connection, beyond: int = 0) -> None:
    """Return once each service has a snapshot beyond a position.

    Services that hear nothing of what is done have one because the log grows.
    """
    log, numbers = (await log_of(connection)).log, count(10_000 + 1_000 * beyond, 5)

    async def all_have_snapshots() -> bool:
        stored = [await stored_position(connection, name, log) for name in SERVICES]
        await work(connection, 5, start=next(numbers))
        return min(stored) > beyond

    await until(all_have_snapshots)


def floor_of(archiver: Archiver) -> dict[str, int]:
    """Return where each holder holds the log."""
    return {each.name: each.first for each in archiver._trimming.holders}


# Faults and races.


async def test_a_service_that_is_stopped_holds_the_log_and_comes_back_by_itself(
    server: NatsServer, tmp_path: Path
) -> None:
    others = [name for name in SERVICES if name != "quota"]
    async with (
        connected(server.url) as connection,
        cell(server, tmp_path, others),
    ):
        # given a service that has stopped after it has saved a snapshot
        async with cell(server, tmp_path, ["quota"]):
            await let_all_save(connection)
        info = await log_of(connection)
        saved = await stored_position(connection, "quota", info.log)

        # when the log goes on, and is trimmed
        archive = tmp_path / "archive"
        async with archiving(
            server, archive, tmp_path / "a.log", NO_ACCESS, trims=True, **AT_ONCE
        ) as archiver:
            await fill(connection, [(SUBJECT, b"{}")] * 500)
            await begins_after(connection, 1)
            await until(lambda: floor_of(archiver)["age"] > info.last)

            # then it holds the log at its snapshot
            assert floor_of(archiver)["quota"] == saved + 1
            assert (await log_of(connection)).first <= saved + 1

            # and when it is started again, then it goes on
            async with cell(server, tmp_path, ["quota"]):
                await work(connection, 5, start=500_000)


async def test_a_replica_that_was_frozen_while_the_log_was_trimmed_begins_with_a_snapshot(
    server: NatsServer, tmp_path: Path
) -> None:
    with launched("quota", server, tmp_path, free_port()) as frozen:
        async with connected(server.url) as connection:
            # given a replica that is frozen, and cut off
            await says(frozen, "ok")
            await work(connection, 3)
            os.kill(frozen.pid, signal.SIGSTOP)
            read = (await log_of(connection)).last
            await restart(server)

            # when another one goes on, and the log is trimmed beyond what the first has read
            async with cell(server, tmp_path, ["quota"]):
                await work(connection, 60, start=100)
                info = await log_of(connection)
                floor = await stored_position(connection, "quota", info.log) + 1
                assert floor > read + 1
                await trim(connection, info.log, floor, info.last, None)
            os.kill(frozen.pid, signal.SIGCONT)

            # then it comes back by itself
            await until(lambda: "trim gap" in str(frozen.lines()))
            await says(frozen, "ok")
            await work(connection, 2, start=1_000)


async def test_nothing_behind_a_damaged_segment_is_trimmed(
    server: NatsServer, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    async with connected(server.url) as connection:
        # given an archive with a segment that is damaged
        async with cell(server, tmp_path):
            await let_all_save(connection)
            await work(connection, 60, start=100)
        async with archiving(server, archive, tmp_path / "a.log"):
            await archived_to(archive, (await log_of(connection)).last)
            await until(lambda: any(archive.glob("sets/*.json")))
        flip_a_bit(archive)
        sound = first_of_segment(archive, 2)

        # when an archiver looks for the floor, then it is where the damage begins
        async with archiving(
            server, archive, tmp_path / "b.log", NO_ACCESS, trims=True, **AT_ONCE
        ) as archiver:
            assert await begins_after(connection, 1) <= sound
            assert floor_of(archiver)["archive"] == sound


def first_of_segment(archive: Path, number: int) -> int:
    """Return the position of the first message of a segment."""
    return int(sorted(archive.rglob("*.parquet"))[number].name.partition("-")[0])


async def test_a_position_that_is_wrong_is_not_trimmed_and_one_that_is_gone_does_no_harm(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a log of which all is archived
        await fill(connection, [(SUBJECT, b"{}")] * 50)
        info = await log_of(connection)
        trim_at = partial(trim, connection, info.log)

        # when it is trimmed twice, and where it is gone already, then once
        assert await trim_at(31, 50, None) == 30
        assert [await trim_at(floor, 50, None) for floor in (31, 20)] == [0, 0]

        # and nothing is trimmed at the beginning, behind the archive or the end, or of another log
        for floor, archived_up in ((1, 50), (0, 50), (42, 40)):
            with pytest.raises(ValueError, match="trimmed at position"):
                await trim_at(floor, archived_up, None)
        with pytest.raises(LogChanged, match="ends at 50"):
            await trim_at(40, 60, None)
        with pytest.raises(LogChanged, match="set back and has grown"):
            await trim_at(40, 50, datetime(2020, 1, 1, tzinfo=UTC))
        with pytest.raises(LogChanged, match="no longer other"):
            await trim(connection, LogId("other"), 40, 50, None)
        assert [each.position for each in await read_all(connection)] == list(range(31, 51))


async def test_the_archiver_may_trim_the_log_and_no_service_may(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.provision()
        async with user(server, OPERATOR) as operator:
            await fill(operator, [("np.cmd.acme.prod.train.ScaleNodePool", b"{}")] * 20)
            info = await log_of(operator)
            # when a service, the gateway and the archiver trim the log
            for name in ("quota", "aggregator", GATEWAY, FEED, PROVISIONER):
                async with user(server, name) as denied:
                    with pytest.raises(Denied):
                        await trim(denied, info.log, 11, 20, None)
            assert (await log_of(operator)).first == 1
            violations = len(server.violations())
            async with user(server, ARCHIVER) as archiver:
                assert await trim(archiver, info.log, 11, 20, None) == 10

            # then the server has let the archiver alone do so
            assert (await log_of(operator)).first == 11
            assert len(server.violations()) == violations


# Backups, and logs of early releases.


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


async def nodepool(server: NatsServer, *arguments: str) -> int:
    """Return the exit code of a command."""
    return await asyncio.to_thread(run, ["--url", server.url, *arguments])
