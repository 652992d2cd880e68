"""`--at` on a real control plane: what was printed then is printed again."""

import asyncio
from pathlib import Path

import pytest

from bus.archives import fill_with_messages
from bus.cli import commands
from bus.harness import connected
from bus.test_restoring import archived_world
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import SNAPSHOTS, STREAM


def test_a_snapshot_of_the_archive_is_used_where_the_bus_has_none(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = ("--org", "acme", "--cluster", "prod")
    archive = ("--archive", str(tmp_path / "archive"))
    nodepool = commands(int(server.url.rpartition(":")[2]), capsys)
    end = len(archived_world(tmp_path / "archive", most=20).world.log.entries)

    # given a log that goes on after its archive, and no snapshot on the bus
    assert nodepool("restore", "--from", archive[1]).code == 0

    async def go_on() -> None:
        async with connected(server.url) as connection:
            await api.request(connection, f"$JS.API.STREAM.PURGE.{SNAPSHOTS}")
            await fill_with_messages(connection, 1)

    asyncio.run(go_on())
    # and an archive whose first segment, which lies before its snapshots, cannot be read
    before = nodepool(*mine, "get", "np", "-o", "json", "--at", str(end), *archive)
    assert before.code == 0
    min((tmp_path / "archive" / "segments").rglob("*.parquet")).unlink()

    # when a moment is shown that only the bus has, then nothing before the snapshots is needed
    after = nodepool(*mine, "get", "np", "-o", "json", "--at", str(end + 1), *archive)
    assert after == before


def test_what_was_trimmed_before_a_moment_is_said_to_be_missing_without_the_archive(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = ("--org", "acme", "--cluster", "prod")
    nodepool = commands(int(server.url.rpartition(":")[2]), capsys)
    end = len(archived_world(tmp_path / "archive", most=20).world.log.entries)
    archive = ("--archive", str(tmp_path / "archive"))

    # given a log that goes on after its archive, and was trimmed
    assert nodepool("restore", "--from", archive[1]).code == 0

    async def trim() -> None:
        async with connected(server.url) as connection:
            await fill_with_messages(connection, 1)
            await api.request(connection, f"$JS.API.STREAM.PURGE.{STREAM}", {"seq": end - 5})

    asyncio.run(trim())

    # when events up to a moment are asked for, then the archive has all of them
    at = ("events", "--since", "24h", "--at", str(end + 1))
    whole = nodepool(*mine, *at, *archive)
    assert (whole.code, whole.err) == (0, "")
    # and the log alone says that it has not
    part = nodepool(*mine, *at)
    assert part.code == 0
    assert f"trim gap: the log begins at position {end - 5}" in part.err
    assert len(part.out) < len(whole.out)

    # and questions about the whole log name what is missing, or the archive answers them
    count = ("log", "query", "SELECT count(*) AS n FROM log", "-o", "csv", "--no-headers")
    assert f"positions 1 to {end - 6} are not on the bus any more" in nodepool(*count).err
    assert nodepool(*count, *archive).out == f"{end + 1}\n"


def test_a_moment_that_nobody_knows_of_is_refused_with_what_is_known(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodepool = commands(int(server.url.rpartition(":")[2]), capsys)

    # given no archive, then
    assert "archive" in nodepool("get", "np", "--at", "5", "--archive", str(tmp_path)).err
    # given no control plane, then
    assert nodepool("--request-timeout", "1", "get", "np", "--at", "2h").code == 4


def test_a_moment_is_written_as_a_time_a_duration_or_a_position(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodepool = commands(1, capsys)

    assert "is no time; write 2026" in nodepool("get", "np", "--at", "yesterday").err
    assert "is in the future" in nodepool("get", "np", "--at", "2999-01-01").err
    assert "two moments with --from" in nodepool("diff", "np").err
    assert "has no meaning with --from" in nodepool("diff", "--from", "2h", "-f", "x").err
    for option in (("--at", "5"), ()):
        assert "DIR: name the folder of a backup" in nodepool("restore", *option).err
    assert "--at: a backup is restored" in nodepool("restore", "x", "--at", "5").err
    for watching in (("get", "np", "-w"), ("events", "-w")):
        assert "--watch: has no meaning with --at" in nodepool(*watching, "--at", "2h").err
