"""What the archiver writes, whatever the log delivers at a time; in a folder, without a bus."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.closing import Limits
from archiver.host.patience import Patience
from archiver.host.recording import Recorder
from nodepool.archive.storage.archive import Archive
from nodepool.archive.storage.checking import verify
from nodepool.archive.storage.errors import ArchiveError, Damaged
from nodepool.archive.storage.store import Store
from nodepool.contract.log import Entry

if TYPE_CHECKING:
    from nodepool.archive.manifests import Manifest
    from nodepool.nats.log.reader import Reader

LATE = datetime(2026, 11, 28, 23, 50, tzinfo=UTC)
LIMITS = Limits(bytes=2_000, quiet_s=0.0)


class EndOfLog(Exception):
    """All has been delivered."""


class Deliveries:
    """A log in memory that delivers so many messages at a time."""

    def __init__(self, entries: Sequence[Entry], sizes: Sequence[int]) -> None:
        self._entries, self._sizes = list(entries), list(sizes)
        self.oldest: datetime | None = None

    @property
    def pending(self) -> int:
        """How many are not delivered."""
        return len(self._entries)

    async def next(self, _timeout_s: float) -> list[Entry]:
        """The next messages."""
        if not self._entries:
            raise EndOfLog
        count = self._sizes.pop(0) if self._sizes else len(self._entries)
        taken, self._entries = self._entries[:count], self._entries[count:]
        return taken


def log_of(count: int, minutes: float) -> list[Entry]:
    """So many messages, with a time between them."""
    return [
        Entry(
            number + 1, LATE + number * timedelta(minutes=minutes), "np.dead.quota", b"x" * 99, {}
        )
        for number in range(count)
    ]


async def record(folder: Path, entries: Sequence[Entry], sizes: Sequence[int] = ()) -> Archive:
    """The archive after all was delivered."""
    archive = await Archive.open(Store(str(folder)), "log", 1)
    stored: list[Manifest] = []
    reader = cast("Reader", Deliveries(entries[archive.head.last :], sizes))
    with pytest.raises(EndOfLog):
        await Recorder(archive, reader, LIMITS, Patience(pytest.fail), stored.append).run()
    return archive


def objects(folder: Path) -> dict[str, bytes]:
    """Every object of an archive."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


BUSY = log_of(200, minutes=1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every object of the archive of a busy log that was delivered at once."""
    folder = tmp_path_factory.mktemp("whole")
    asyncio.run(record(folder, BUSY))
    return objects(folder)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), max_size=20))
def test_the_segments_of_a_busy_log_are_the_same_however_it_is_delivered(
    whole: dict[str, bytes], sizes: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(record(Path(folder), BUSY, sizes))

        assert objects(Path(folder)) == whole


async def test_a_segment_has_messages_of_one_day_also_if_the_clock_goes_back(
    tmp_path: Path,
) -> None:
    # given messages around midnight, after which the clock of the server is put back
    entries = log_of(4, minutes=5)
    entries.append(entries[-1]._replace(position=5, time=LATE))

    await record(tmp_path, entries)

    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "manifests").iterdir())]
    days = [(each["first"], each["last"], each["object"]["name"][13:23]) for each in found]
    assert days == [(1, 2, "2026-11-28"), (3, 4, "2026-11-29"), (5, 5, "2026-11-28")]
    assert (await verify(Store(str(tmp_path)))).faults == 0


async def test_a_message_that_the_log_lacks_is_never_passed_over(tmp_path: Path) -> None:
    entries = log_of(10, minutes=0)
    archive = await Archive.open(Store(str(tmp_path)), "log", 1)
    reader = cast("Reader", Deliveries([*entries[:4], *entries[5:]], ()))

    with pytest.raises(ArchiveError, match="messages are missing: the log has 6 where 5 is next"):
        await Recorder(archive, reader, LIMITS, Patience(pytest.fail), lambda _: None).run()


class Forgetful(Store):
    """A store that returns other bytes of segments than it was given."""

    async def get(self, name: str) -> bytes | None:
        content = await super().get(name)
        return content and content[::-1] if name.endswith(".parquet") else content


async def test_a_segment_that_the_store_returns_differently_is_no_segment_that_was_stored(
    tmp_path: Path,
) -> None:
    archive = await Archive.open(Forgetful(str(tmp_path)), "log", 1)
    reader = cast("Reader", Deliveries(log_of(100, minutes=0), ()))
    stored: list[Manifest] = []

    with pytest.raises(Damaged, match="is damaged: its SHA-256 is another one"):
        await Recorder(archive, reader, LIMITS, Patience(pytest.fail), stored.append).run()

    assert stored == []


async def test_the_archive_of_another_log_is_refused(tmp_path: Path) -> None:
    await record(tmp_path, log_of(10, minutes=0))

    with pytest.raises(ArchiveError, match="it holds the log log, and the bus has the log other"):
        await Archive.open(Store(str(tmp_path)), "other", 1)


def commits(sizes: Sequence[int]) -> list[Entry]:
    """A log of commits that have so many outputs each."""
    subjects = [
        subject
        for size in sizes
        for subject in (*["np.evt.quota.a.b.c.X"] * size, "np.commit.quota")
    ]
    return [
        Entry(number, LATE, subject, b"x" * 99, {}) for number, subject in enumerate(subjects, 1)
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.lists(st.integers(1, 30)))
def test_no_segment_ends_inside_a_commit_of_a_service(
    sizes: list[int], deliveries: list[int]
) -> None:
    entries = commits(sizes)

    with TemporaryDirectory() as name:
        archive = asyncio.run(record(Path(name), entries, deliveries))
        manifests = sorted(Path(name, "manifests").iterdir())
        ends = [json.loads(path.read_text())["last"] for path in manifests]

    assert archive.head.last == len(entries)
    assert {entries[end - 1].subject for end in ends} == {"np.commit.quota"}
