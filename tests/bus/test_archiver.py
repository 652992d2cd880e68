"""The archive of a log on a real server: whole whatever happens, and checked as a whole."""

import asyncio
import hashlib
import json
import os
import shutil
import signal
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bus.accounts import guarded_server
from bus.archives import (
    SMALL,
    archived_to,
    archiving,
    audit,
    end_of,
    fill_with_messages,
    launched_archiver,
)
from bus.harness import connected, limit, outcome, read_all, restart, send, serving, until
from bus.test_process_life import readiness, says
from nodepool.auth.accounts import ARCHIVER
from nodepool.cli.app import run
from nodepool.contract.archive_metrics import OF_THE_ARCHIVER
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import Loader, dump
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import IDENTITY, STREAM, stream_info, streams
from nodepool.nats.objects.snapshots import stored_position
from nodepool.nats.wire.connection import connect
from quota.decide import SERVICE as QUOTA
from support.clocks import wrong_clock
from support.disks import MEGABYTES

MESSAGES = 1_500
"""Enough for some ten segments."""


async def verify(archive: Path | str) -> int:
    """The exit code of `nodepool log verify`."""
    return await asyncio.to_thread(run, ["log", "verify", "--archive", str(archive)])


async def test_two_archivers_at_once_make_one_archive(server: NatsServer, tmp_path: Path) -> None:
    archive = tmp_path / "archive"

    async with connected(server.url) as connection:
        # given two archivers that close their segments at different sizes
        with (
            launched_archiver(server, archive, tmp_path),
            launched_archiver(server, archive, tmp_path, segment_bytes=SMALL // 3),
        ):
            # when messages arrive
            for number in range(4):
                await fill_with_messages(connection, MESSAGES // 4, start=number * MESSAGES)
            await archived_to(archive, MESSAGES)

        # then neither has lost, doubled or replaced a message
        assert await audit(connection, archive) == MESSAGES
    assert await verify(archive) == 0


async def test_an_archiver_that_was_frozen_goes_on_after_what_another_has_added(
    server: NatsServer, tmp_path: Path
) -> None:
    archive, part = tmp_path / "archive", MESSAGES // 3

    async with connected(server.url) as connection:
        # given an archiver that is frozen with a segment that it has not closed
        with launched_archiver(server, archive, tmp_path, quiet_seconds=600) as frozen:
            await fill_with_messages(connection, part)
            await until(lambda: end_of(archive) > 0)
            os.kill(frozen.pid, signal.SIGSTOP)

            # when another adds to the archive, and the first one is woken
            with launched_archiver(server, archive, tmp_path):
                await fill_with_messages(connection, part, start=MESSAGES)
                await archived_to(archive, 2 * part)
            os.kill(frozen.pid, signal.SIGCONT)
            await fill_with_messages(connection, part, start=2 * MESSAGES)
            await until(lambda: end_of(archive) > 2 * part)

        # then the archive has no message twice
        with launched_archiver(server, archive, tmp_path):
            await archived_to(archive, 3 * part)
        assert await audit(connection, archive) == 3 * part
    assert await verify(archive) == 0


async def test_a_server_that_is_killed_and_started_again_only_delays_the_archive(
    server: NatsServer, tmp_path: Path
) -> None:
    archive, part = tmp_path / "archive", MESSAGES // 5

    async with connected(server.url) as connection:
        with launched_archiver(server, archive, tmp_path) as archiver:
            # given a server that is killed and started again and again, while messages arrive
            for number in range(5):
                await fill_with_messages(connection, part, start=number * MESSAGES)
                await restart(server)
                await until(lambda: connection.is_connected)

            # then the archiver has all of them without a restart of its own
            await archived_to(archive, MESSAGES)
            await says(archiver, "ok")
        assert await audit(connection, archive) == MESSAGES


def flip_a_bit(archive: Path) -> str:
    segment = sorted(archive.rglob("*.parquet"))[2]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    return "is damaged: its SHA-256 is another one"


def change_a_manifest(archive: Path) -> str:
    manifest = sorted((archive / "manifests").iterdir())[2]
    manifest.write_text(manifest.read_text().replace('"ended": "20', '"ended": "19'))
    return "names another manifest before it than the archive has"


def remove_a_segment(archive: Path) -> str:
    sorted(archive.rglob("*.parquet"))[2].unlink()
    return "is missing"


def remove_a_manifest(archive: Path) -> str:
    sorted((archive / "manifests").iterdir())[2].unlink()
    return "are missing"


def cut_a_segment(archive: Path) -> str:
    segment = sorted(archive.rglob("*.parquet"))[2]
    content = segment.read_bytes()
    segment.write_bytes(content[:-100])
    return f"has {len(content) - 100} bytes instead of {len(content)}"


def add_an_overlap(archive: Path) -> str:
    manifest = sorted((archive / "manifests").iterdir())[2]
    first = int(manifest.stem) + 1
    text = manifest.read_text().replace(f'"first": {first - 1}', f'"first": {first}')
    (archive / "manifests" / f"{first:020}.json").write_text(text)
    return "are in the archive twice"


def mix_in_another_log(archive: Path) -> str:
    manifest = sorted((archive / "manifests").iterdir())[2]
    log = json.loads(manifest.read_text())["log"]
    manifest.write_text(manifest.read_text().replace(log, "0000000000000000"))
    return f"is of the log 0000000000000000, and the archive holds {log}"


def spoil_a_manifest(archive: Path) -> str:
    sorted((archive / "manifests").iterdir())[2].write_text("{}")
    return "cannot be read: began, count"


FAULTS: tuple[Callable[[Path], str], ...] = (
    flip_a_bit,
    change_a_manifest,
    remove_a_segment,
    remove_a_manifest,
    cut_a_segment,
    add_an_overlap,
    mix_in_another_log,
    spoil_a_manifest,
)


async def test_each_fault_of_an_archive_is_found_and_named(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "archive"
    async with connected(server.url) as connection:
        await fill_with_messages(connection, MESSAGES)
        async with archiving(server, whole, tmp_path / "archiver.log"):
            await archived_to(whole, MESSAGES)
    assert await verify(whole) == 0
    assert f"{MESSAGES} messages, positions 1 to {MESSAGES}" in capsys.readouterr().out

    for spoil in FAULTS:
        # given an archive with a fault
        archive = tmp_path / spoil.__name__
        shutil.copytree(whole, archive)
        fault = spoil(archive)

        # when it is read back, then the fault is named
        assert await verify(archive) == 1
        said = capsys.readouterr().err
        assert fault in said
        assert "the archive is sound up to position" in said


async def test_a_crash_leaves_at_most_a_segment_without_a_manifest(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, log = tmp_path / "archive", tmp_path / "archiver.log"
    async with connected(server.url) as connection:
        await fill_with_messages(connection, MESSAGES)
        async with archiving(server, archive, log):
            await archived_to(archive, MESSAGES)

        # given an archive whose newest manifest was not written before a crash, half of whose
        # segment is there, and which has a segment that nobody names
        newest = sorted((archive / "manifests").iterdir())[-1]
        segment = archive / json.loads(newest.read_text())["object"]["name"]
        newest.unlink()
        segment.write_bytes(segment.read_bytes()[:100])
        shutil.copy(segment, segment.with_name(f"{MESSAGES:020}-{MESSAGES:020}-{'0' * 16}.parquet"))

        # when an archiver goes on
        async with archiving(server, archive, log):
            await archived_to(archive, MESSAGES)

        # then the archive is whole, and says that something is left over
        assert await audit(connection, archive) == MESSAGES
    assert await verify(archive) == 0
    assert "2 segments belong to no manifest" in capsys.readouterr().out


async def test_a_log_is_never_mixed_into_the_archive_of_another(
    server: NatsServer, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    async with connected(server.url) as connection:
        await fill_with_messages(connection, MESSAGES)
        async with archiving(server, archive, tmp_path / "one.log"):
            await archived_to(archive, MESSAGES)
        info = await stream_info(connection, STREAM)
        assert info is not None
        before = sorted(archive.rglob("*"))

        # given another log in its place
        await api.request(connection, f"$JS.API.STREAM.DELETE.{STREAM}")
    async with connected(server.url) as connection:
        await fill_with_messages(connection, MESSAGES)

        # when an archiver is to add it to the archive, then it says what is wrong, and adds nothing
        with launched_archiver(server, archive, tmp_path) as archiver:
            fault = f"it holds the log {info.log}, and the bus has the log "
            await until(lambda: fault in readiness(archiver))

        # and neither does it where the log has the same identity, but was set back and has grown
        config = {**streams()[STREAM], "metadata": {IDENTITY: info.log}}
        await api.request(connection, f"$JS.API.STREAM.DELETE.{STREAM}")
        await api.request(connection, f"$JS.API.STREAM.CREATE.{STREAM}", config)
        for count, fault in ((10, "was read to"), (MESSAGES, "was set back and has grown since")):
            await fill_with_messages(connection, count)
            with launched_archiver(server, archive, tmp_path) as archiver:
                await until(lambda: fault in readiness(archiver))  # noqa: B023
        assert sorted(archive.rglob("*")) == before


async def test_a_set_holds_the_snapshots_with_which_a_service_can_begin(
    server: NatsServer, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    # given a service that has saved a snapshot, and goes on
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "quota.log", snapshot_after=10),
    ):
        info = await stream_info(connection, STREAM)
        assert info is not None
        for number in range(20):
            await send(connection, limit(number), f"c{number}")
        await outcome(connection, "c19")

        async def is_saved() -> bool:
            return await stored_position(connection, QUOTA.name, info.log) > 0

        await until(is_saved)

        # when an archiver is at work
        async with archiving(server, archive, tmp_path / "archiver.log"):
            await until(lambda: any(archive.glob("sets/*.json")))
        entries = await read_all(connection)

    # then the set holds a state of the service, and the segments go as far
    (path,) = archive.glob("sets/*.json")
    found = json.loads(path.read_text())["snapshots"]["quota"]
    assert end_of(archive) >= found["committed"] > 0
    lines = unpacked([(archive / part["name"]).read_bytes() for part in found["parts"]])
    assert hashlib.sha256(lines).hexdigest() == found["sha256"]
    loader = Loader(type(QUOTA.initial))
    for line in lines.splitlines():
        loader.add(line)
    replica = Replica(QUOTA, log=info.log)
    for entry in entries[: found["expected_sequence"]]:
        if QUOTA.wants(entry.subject):
            replica.read(entry)
    assert list(dump(loader.build_folded())) == list(dump(replica.safe))
    assert await verify(archive) == 0


def unpacked(parts: Sequence[bytes]) -> bytes:
    """What the chunks in the parts of a snapshot were before compression."""
    lines, packed = b"", b"".join(parts)
    while packed:
        unpacking = zlib.decompressobj()
        lines += unpacking.decompress(packed)
        packed = unpacking.unused_data
    return lines


async def test_a_full_disk_only_delays_the_archive(
    server: NatsServer, disk: Path, tmp_path: Path
) -> None:
    archive, hog = disk / "archive", disk / "hog"

    # given an archive on a disk that others have filled
    with pytest.raises(OSError, match="No space left"):
        hog.write_bytes(bytes(2 * MEGABYTES << 20))
    async with connected(server.url) as connection:
        with launched_archiver(server, archive, tmp_path) as archiver:
            await fill_with_messages(connection, MESSAGES)
            await until(lambda: "No space left on device" in readiness(archiver))
            assert archiver.metric("nodepool_archive_store_failures_total") >= 1
            assert archiver.metric("nodepool_ready") == 0

            # when there is room again
            hog.unlink()

            # then nothing is lost, and the archiver says that it is well
            await archived_to(archive, MESSAGES)
            await until(lambda: archiver.metric("nodepool_ready") == 1)
        assert await audit(connection, archive) == MESSAGES


@pytest.mark.parametrize("skew", ["+1h", "-1h"])
async def test_how_long_messages_wait_is_told_by_the_clock_of_the_server(
    server: NatsServer, tmp_path: Path, skew: str
) -> None:
    archive = tmp_path / "archive"
    async with connected(server.url) as connection:
        await fill_with_messages(connection, MESSAGES)
        # given an archiver whose clock is wrong, and which waits for more
        with launched_archiver(
            server, archive, tmp_path, wrong_clock(skew), quiet_seconds=600
        ) as archiver:
            await says(archiver, "ok")
            await until(lambda: archiver.metric("nodepool_archive_lag_messages") > 0)

            # then it says for how many seconds messages have waited, once it has asked the server
            await until(lambda: archiver.metric("nodepool_archive_lag_seconds") > 0)
            assert archiver.metric("nodepool_archive_lag_seconds") < 600

        # and each is archived with the time of the server
        with launched_archiver(server, archive, tmp_path, wrong_clock(skew)):
            await archived_to(archive, MESSAGES)
        assert await audit(connection, archive) == MESSAGES


async def test_what_an_archiver_has_done_is_seen(server: NatsServer, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    async with connected(server.url) as connection:
        await fill_with_messages(connection, MESSAGES)
        # given an archive with all messages but the newest
        with launched_archiver(server, archive, tmp_path) as archiver:
            await archived_to(archive, MESSAGES)
        # when an archiver waits for more, before it closes a segment
        with launched_archiver(server, archive, tmp_path, quiet_seconds=600) as archiver:
            await says(archiver, "ok")
            await fill_with_messages(connection, 3)
            await until(lambda: archiver.metric("nodepool_archive_lag_messages") == 3)
            await until(lambda: archiver.metric("nodepool_archive_read_back_position") == MESSAGES)
            await until(lambda: archiver.metric("nodepool_archive_lag_seconds") > 0)

            # then its metrics say where it is
            assert archiver.metric("nodepool_archive_position") == MESSAGES
            assert archiver.metric("nodepool_archive_faults") == 0
            segments = list(archive.rglob("*.parquet"))
            assert archiver.metric("nodepool_archive_segments") == len(segments)
            page = archiver.page("/metrics")
            assert [
                m.name for m in OF_THE_ARCHIVER if f"# HELP {m.name} {m.help}" not in page
            ] == []
            size = sum(segment.stat().st_size for segment in segments)
            assert archiver.metric("nodepool_archive_bytes") == size


async def test_the_rights_of_the_archiver_are_enough(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        access = server.access("validator")
        validator = await connect(server.url, "validator", access=access)
        await api.publish(validator, "np.dead.validator", b"{}")
        await validator.close()

        log, own = tmp_path / "archiver.log", server.access(ARCHIVER)
        async with archiving(server, archive, log, own):
            await archived_to(archive, 1)

        assert server.violations() == []
