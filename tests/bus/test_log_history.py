"""The whole log as SQL sees it: the archive, and what only the server has so far."""

import asyncio
import shutil
from pathlib import Path

import pytest

from bus.archives import archived_to, archiving, end_of, fill_with_messages
from bus.harness import connected, fill
from nodepool.cli.app import run
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM, streams
from support.replay import scenario_log

PART = 500
COUNT = "SELECT count(DISTINCT position) AS n, max(position) AS last FROM log"


async def asked(server: NatsServer, *options: str, sql: str = COUNT) -> int:
    """The exit code of a question, whose answer is printed as CSV."""
    words = ["log", "query", sql, "-o", "csv", "--no-headers", "--url", server.url, *options]
    return await asyncio.to_thread(run, words)


async def test_what_is_not_archived_yet_is_part_of_the_log(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    async with connected(server.url) as connection:
        # given an archive of a part of the log, and messages that came later
        await fill_with_messages(connection, PART)
        async with archiving(server, archive, tmp_path / "archiver.log"):
            await archived_to(archive, PART)
        end = end_of(archive)
        await fill_with_messages(connection, PART, start=PART)
        last = await api.last_position(connection, STREAM)
        assert PART <= end < last

        # when the log is asked for all of it, then both are there, each message once
        assert await asked(server, "--archive", str(archive)) == 0
        assert capsys.readouterr().out == f"{last},{last}\n"

        # and so they are without an archive, which the log does not need as long as it is whole
        assert await asked(server) == 0
        assert capsys.readouterr().out == f"{last},{last}\n"

        # and a time before the end of the archive needs no server
        assert await asked(server, "--archive", str(archive), "--only-archived") == 0
        assert capsys.readouterr().out == f"{end},{end}\n"


async def test_the_archive_of_another_log_and_a_gap_are_named(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    async with connected(server.url) as connection:
        await fill_with_messages(connection, PART)
        async with archiving(server, archive, tmp_path / "archiver.log"):
            await archived_to(archive, PART)
        older = tmp_path / "older"
        shutil.copytree(archive, older)
        sorted((older / "manifests").iterdir())[-1].unlink()

        # given another log, which is cut off at its beginning
        await api.request(connection, f"$JS.API.STREAM.DELETE.{STREAM}")
        config = {**streams()[STREAM], "deny_purge": False, "metadata": {}}
        await api.request(connection, f"$JS.API.STREAM.CREATE.{STREAM}", config)
        await fill_with_messages(connection, 2 * PART)
        await api.request(connection, f"$JS.API.STREAM.PURGE.{STREAM}", {"seq": PART})

        # when it is asked with the archive of the first, then that is named
        assert await asked(server, "--archive", str(archive)) == 1
        assert "and the bus has the log" in capsys.readouterr().err

        # and without an archive, what is missing is named
        assert await asked(server) == 1
        said = capsys.readouterr().err
        assert f"positions 1 to {PART - 1} are not on the bus any more" in said
        assert "name the archive with --archive" in said


async def test_node_hours_are_the_same_with_an_archive_and_without(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    said = [(entry.subject, entry.content) for entry in scenario_log()]
    async with connected(server.url) as connection:
        # given Nodes that come and go, a part of which is archived
        await fill(connection, said[:400])
        async with archiving(server, archive, tmp_path / "archiver.log"):
            await archived_to(archive, 400)
        assert end_of(archive) < len(said)
        await fill(connection, said[400:])
        newest = await api.message_at(connection, STREAM, len(said))
        assert newest is not None

    async def counted(*options: str) -> str:
        words = ["usage", "--by=pool", "-o=csv", "--from=-1h", f"--to={newest.time.isoformat()}"]
        assert await asyncio.to_thread(run, [*words, "--url", server.url, *options]) == 0
        return capsys.readouterr().out

    # when they are counted with the archive and the server, and from the server alone
    both, alone = await counted("--archive", str(archive)), await counted()

    # then that is the same
    assert both == alone
    assert [line.split(",")[2] for line in both.splitlines()[1:]] == [
        *("cheap", "greedy", "serve", "train")
    ]
