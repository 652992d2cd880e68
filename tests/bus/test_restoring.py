"""`nodepool restore --from` on a real control plane: every disk is lost, and it goes on."""

import asyncio
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bus.archives import (
    archived_to,
    audit,
    fill_with_messages,
    launched_archiver,
    messages,
)
from bus.cli import commands
from bus.harness import BINARY, ReplicaProcess, connected, read_all, until
from bus.test_process_life import readiness
from nodepool.contract.log import Entry
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM, StreamInfo, stream_info
from nodepool.nats.wire.connection import connect
from support.archived import LENGTH_MAX, Archiving
from support.world_harness import WorldHarness
from testbed.ports import free_port
from testbed.processes import ControlPlane


def lose_every_disk(plane: ControlPlane, folder: Path) -> None:
    """The server loses all that it has stored, and starts with nothing."""
    plane.server.kill()
    shutil.rmtree(folder / "nats" / "jetstream")
    plane.server.start()


async def log_of(url: str) -> list[Entry]:
    """Every message of the log."""
    connection = await connect(url, "test", patience_s=30)
    try:
        return await read_all(connection)
    finally:
        await connection.close()


def archived_world(folder: Path, most: int = LENGTH_MAX) -> WorldHarness:
    """A world that has ended just now, with an archive that has a set of snapshots."""
    harness = WorldHarness()
    harness.world.log.clock = datetime.now(UTC) - timedelta(minutes=70)
    harness.given_data_center(machines=12, quota=20)
    for number in range(4):
        harness.apply(f"pool{number}", 2)
    harness.pass_time(minutes=30)
    archiving = Archiving(folder, harness.world.log.id, most=most)
    for host in harness.world.hosts:
        harness.world.process(host, even_if_quiet=True)
    asyncio.run(archiving.add(harness.world.log.entries))
    replicas, log = (host.replica for host in harness.world.hosts), harness.world.log
    asyncio.run(archiving.add_set(replicas, log.entries, log.clock))
    harness.apply("pool0", 3)
    harness.pass_time(minutes=30)
    asyncio.run(archiving.add(harness.world.log.entries))
    return harness


def test_services_go_on_from_archived_snapshots_where_the_start_of_the_log_is_not_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    harness = archived_world(archive)
    end = len(harness.world.log.entries)

    with ControlPlane(tmp_path, processes=2) as plane:
        nodepool = commands(int(plane.server.url.rpartition(":")[2]), capsys)
        with plane.pause_services():
            lose_every_disk(plane, tmp_path)
            # when no more is restored than the services need
            done = nodepool("restore", "--from", str(archive), "--days", "0")
            assert done.code == 0, done.err
            info = asyncio.run(info_of(plane.server.url))
            assert 1 < info.first < info.last == end

        # then all of them are ready, and commands are obeyed
        mine = ("--org", "acme", "--cluster", "prod")
        waited = nodepool(
            *mine, "wait", "np/pool0", "--for", "condition=AtTarget", "--timeout", "60s"
        )
        assert waited.code == 0, waited
        assert nodepool(*mine, "scale", "np/pool1", "--target", "4").code == 0
        assert nodepool(*mine, "rollout", "status", "np/pool1", "--timeout", "60s").code == 0
    assert plane.errors() == ""


async def info_of(url: str) -> StreamInfo:
    """What the server says of the log."""
    connection = await connect(url, "test", patience_s=30)
    try:
        info = await stream_info(connection, STREAM)
        assert info is not None
        return info
    finally:
        await connection.close()


def restoring(url: str, *arguments: str) -> subprocess.Popen[str]:
    """A `nodepool restore` of its own process."""
    words = [sys.executable, "-m", "nodepool.cli", "--url", url, "restore", *arguments]
    return subprocess.Popen(
        words,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


MESSAGES = 1_200
"""More than a server restores before a story has seen that the restore has begun."""


async def archive_messages(archive: Path) -> list[Entry]:
    """An archive with many messages, as it has them."""
    now = datetime.now(UTC) - timedelta(hours=1)
    entries = [
        Entry(number + 1, now + number * timedelta(milliseconds=1), subject, content, {})
        for number, (subject, content) in enumerate(messages(MESSAGES))
    ]
    await Archiving(archive, "0123456789abcdef", most=MESSAGES // 3).add(entries)
    return entries


def stored_bytes(folder: Path) -> int:
    """Return the size in bytes of the message files of a log that a server may be restoring."""
    size = 0
    for file in folder.glob("**/NODEPOOL/msgs/*.blk"):
        with suppress(FileNotFoundError):  # The server may replace a file meanwhile.
            size += file.stat().st_size
    return size


async def restore_through_kills(server: NatsServer, folder: Path, rounds: int) -> None:
    """Has restores killed, one after another, and completes each by the next one."""
    archive, chance = folder / "archive", random.Random(3)
    entries = await archive_messages(archive)
    whole = sum(len(entry.content) for entry in entries)

    for number in range(rounds):
        # given a restore that is killed once the server has some part of the log, or its server is
        process, part = restoring(server.url, "--from", str(archive)), chance.random() * whole
        await until(lambda part=part: stored_bytes(server.data_dir) > part)
        if number % 2:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        process.kill()
        await asyncio.to_thread(process.communicate)

        # when it is run again, then it completes the log, unless that is whole already
        again = restoring(server.url, "--from", str(archive))
        _, error = await asyncio.to_thread(again.communicate)
        assert again.returncode == 0 or "there is a log already" in error, error
        assert await log_of(server.url) == entries
        await asyncio.to_thread(server.kill)
        shutil.rmtree(folder / "nats" / "jetstream")
        await asyncio.to_thread(server.start)


async def test_a_restore_that_is_killed_leaves_nothing_or_all_and_the_next_one_completes_it(
    server: NatsServer, tmp_path: Path
) -> None:
    # Once it is killed itself, and once with its server.
    await restore_through_kills(server, tmp_path, rounds=2)


def content_of(folder: Path) -> dict[str, bytes]:
    """Every object of an archive."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


async def is_at_fault(archiver: ReplicaProcess, cause: str) -> bool:
    """Whether an archiver says that it cannot work for a cause that contains this."""
    return cause in await asyncio.to_thread(readiness, archiver)


async def test_a_log_that_is_set_back_to_a_moment_never_gets_into_the_archive_of_what_followed(
    server: NatsServer, tmp_path: Path
) -> None:
    archive, other = tmp_path / "archive", tmp_path / "other"
    entries = await archive_messages(archive)
    before, middle = content_of(archive), entries[MESSAGES // 2]

    # given a log that is restored up to a time
    process = restoring(server.url, "--from", str(archive), "--at", middle.time.isoformat())
    out, error = await asyncio.to_thread(process.communicate)
    assert f"positions 1 to {middle.position}, as of {middle.time.isoformat()}" in out
    assert "give it another place before the services start" in error
    assert await log_of(server.url) == entries[: middle.position]

    # when it goes on, beyond where the archive ends
    with launched_archiver(server, archive, tmp_path) as archiver:
        async with connected(server.url) as connection:
            await until(lambda: is_at_fault(archiver, "the log 0123456789abcdef ends at"))
            await fill_with_messages(connection, MESSAGES, start=MESSAGES)
            await until(lambda: is_at_fault(archiver, "was set back and has grown"))

            # then its archiver adds nothing to the archive, and all to one of its own
            assert content_of(archive) == before
            last = await api.last_position(connection, STREAM)
            with launched_archiver(server, other, tmp_path):
                await archived_to(other, last)
            assert await audit(connection, other) == last


def test_a_log_never_ends_inside_the_commit_of_a_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = archived_world(tmp_path / "whole")
    log, ends = world.world.log.entries, [0]
    for entry in log:
        if not entry.subject.startswith("np.evt.") or ".clock." in entry.subject:
            ends.append(entry.position)

    with NatsServer(tmp_path / "nats", free_port(), BINARY) as server:
        nodepool = commands(int(server.url.rpartition(":")[2]), capsys)
        for position in random.Random(1).sample(range(2, len(log)), 8):
            # when a log is restored up to any position, then it ends where a commit does
            at = ("--at", str(position), "--force")
            assert nodepool("restore", "--from", str(tmp_path / "whole"), *at).code == 0
            restored = asyncio.run(log_of(server.url))
            assert len(restored) == max(end for end in ends if end <= position)
            assert restored == log[: len(restored)]


async def test_a_damaged_archive_is_refused_before_anything_is_deleted(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    await archive_messages(archive)
    async with connected(server.url) as connection:
        await fill_with_messages(connection, 10)
        before = await read_all(connection)
        segment = max(archive.glob("segments/*/*.parquet"))
        content = segment.read_bytes()
        segment.write_bytes(content[:-1])

        process = restoring(server.url, "--from", str(archive), "--force")
        _, error = await asyncio.to_thread(process.communicate)

        assert f"{segment.name} has {len(content) - 1} bytes instead of {len(content)}" in error
        assert await read_all(connection) == before
