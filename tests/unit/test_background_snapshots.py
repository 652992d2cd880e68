"""When a snapshot is saved, and what happens to one that fails."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from nodepool.host.logs import ServiceLog
from nodepool.host.settings import Settings
from nodepool.host.snapshots import Snapshots
from nodepool.nats.errors import InDoubt

EVERY = 100
Save = Callable[[asyncio.Event], Coroutine[None, None, int]]


async def succeed(enough: asyncio.Event) -> int:
    await enough.wait()
    return 1


async def fail(enough: asyncio.Event) -> int:
    await enough.wait()
    raise InDoubt("no reply")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ServiceLog]:
    opened = ServiceLog("quota", Settings(log_file=str(tmp_path / "quota.log")))
    yield opened
    opened.close()


async def saving(snapshots: Snapshots, save: Save) -> asyncio.Event:
    """A snapshot that is being saved until the event is set."""
    snapshots.count(EVERY)
    assert snapshots.is_due()
    enough = asyncio.Event()
    snapshots.start(save(enough))
    await asyncio.sleep(0)
    return enough


def test_a_snapshot_is_due_after_so_many_inputs(log: ServiceLog) -> None:
    # given snapshots after every hundred inputs
    snapshots = Snapshots(EVERY, log.logger)

    # when fewer are processed
    snapshots.count(EVERY - 1)

    # then none is due, and one is with the hundredth
    assert not snapshots.is_due()
    snapshots.count(1)
    assert snapshots.is_due()


def test_only_one_snapshot_is_saved_at_a_time(log: ServiceLog) -> None:
    async def story() -> None:
        # given a snapshot that is being saved
        snapshots = Snapshots(EVERY, log.logger)
        enough = await saving(snapshots, succeed)

        # when as many inputs are processed in the meantime
        snapshots.count(EVERY)

        # then the next one is due only when the first is saved
        assert not snapshots.is_due()
        enough.set()
        await snapshots.finish()
        assert snapshots.is_due()

    asyncio.run(story())


def test_a_snapshot_starts_the_count_anew(log: ServiceLog) -> None:
    async def story() -> None:
        # given a snapshot that was saved
        snapshots = Snapshots(EVERY, log.logger)
        enough = await saving(snapshots, succeed)
        enough.set()
        await snapshots.finish()

        # when nothing was processed since
        # then no other is due
        assert not snapshots.is_due()

    asyncio.run(story())


def test_a_snapshot_that_failed_is_logged_and_the_next_one_is_due_as_ever(
    log: ServiceLog, tmp_path: Path
) -> None:
    async def story() -> None:
        # given a snapshot that fails
        snapshots = Snapshots(EVERY, log.logger)
        enough = await saving(snapshots, fail)
        enough.set()
        await asyncio.sleep(0)

        # when as many inputs were processed again
        snapshots.count(EVERY)
        due = snapshots.is_due()

        # then the failure is logged, and the next one is due
        log.flush()
        (line,) = map(json.loads, (tmp_path / "quota.log").read_text().splitlines())
        assert (line["event"], line["level"], line["cause"]) == (
            "snapshot failed",
            "warning",
            "no reply",
        )
        assert due

    asyncio.run(story())


def test_finish_without_a_snapshot_does_nothing(log: ServiceLog) -> None:
    # given no snapshot that is being saved
    # when the replica stops
    # then there is nothing to wait for
    asyncio.run(Snapshots(EVERY, log.logger).finish())
