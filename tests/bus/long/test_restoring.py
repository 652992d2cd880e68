"""A control plane that has lost every disk."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from bus.archives import (
    archived_to,
    audit,
    end_of,
    launched_archiver,
)
from bus.cli import Done, Nodepool, commands
from bus.harness import connected
from bus.test_restoring import log_of, lose_every_disk, restore_through_kills
from nodepool.cli.app import run
from nodepool.local.server import NatsServer
from testbed.processes import ControlPlane

SHOWN = (
    ("get", "np,no,qt,cap,cl,ma", "-o", "yaml"),
    ("events", "--since", "5m", "-o", "json"),
)


def in_quiet(nodepool: Nodepool) -> Sequence[Done]:
    """What is shown as soon as it no longer changes."""
    before: Sequence[Done] = ()
    while True:
        after = [nodepool(*words) for words in SHOWN]
        if before == after:
            return after
        before = after


def test_a_control_plane_that_has_lost_every_disk_goes_on_from_its_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    with ControlPlane(tmp_path, processes=2) as plane:
        nodepool = commands(int(plane.server.url.rpartition(":")[2]), capsys)
        # given a cell with work, whose log is in its archive
        assert nodepool("demo").code == 0
        assert nodepool("scale", "np", "--all", "--target", "2").code == 0
        before = in_quiet(nodepool)
        with launched_archiver(plane.server, archive, tmp_path):
            end = len(asyncio.run(log_of(plane.server.url)))
            asyncio.run(archived_to(archive, end))
        # Services that are quiet commit now and then, so the archive may go on after that.
        log = asyncio.run(log_of(plane.server.url))[: end_of(archive)]

        # when all that the server has stored is lost, and restored from the archive
        with plane.pause_services():
            lose_every_disk(plane, tmp_path)
            done = nodepool("restore", "--from", str(archive))
            assert (done.code, done.err) == (0, "")
            assert f"log restored: positions 1 to {end_of(archive)}" in done.out
            assert asyncio.run(log_of(plane.server.url)) == log

        # then the services come back, and all is as it was
        while in_quiet(nodepool) != before:  # The time limit of the test ends this.
            pass
        # and a command of before does nothing again, and a new one does something
        assert nodepool("scale", "np", "--all", "--target", "3").code == 0
        in_quiet(nodepool)
        after = asyncio.run(log_of(plane.server.url))
        assert after[: len(log)] == log
        # and the archiver goes on in the same archive
        with launched_archiver(plane.server, archive, tmp_path):
            asyncio.run(archived_to(archive, len(after)))
        assert asyncio.run(audited(plane.server.url, archive)) >= len(after)
    assert run(["log", "verify", "--archive", str(archive)]) == 0
    assert plane.errors() == ""


async def audited(url: str, archive: Path) -> int:
    """Audit the archive; return how many messages it holds."""
    async with connected(url) as connection:
        return await audit(connection, archive)


async def test_restores_that_are_killed_at_many_moments_are_completed_by_the_next_ones(
    server: NatsServer, tmp_path: Path
) -> None:
    await restore_through_kills(server, tmp_path, rounds=6)
