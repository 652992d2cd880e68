"""Any part of an archive is read as it was written, or it is said what is wrong."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodepool.archive.storage.errors import ArchiveError, Damaged
from nodepool.archive.storage.records import Records
from nodepool.archive.storage.store import Store
from nodepool.contract.log import Entry
from support.archived import archive_entries

LATE = datetime(2026, 11, 28, 23, 50, tzinfo=UTC)
COUNT = 60


def log_of(gaps: Sequence[int]) -> list[Entry]:
    """A log with so many seconds between its messages, which may be none."""
    entries, time = list[Entry](), LATE
    for number, gap in enumerate(gaps, 1):
        time += timedelta(seconds=gap)
        subject = f"np.evt.quota.a.b.{number % 3}.X"
        entries.append(Entry(number, time, subject, b"%d" % number, {"n": str(number)}))
    return entries


async def archived(folder: Path, entries: Sequence[Entry], most: int = 9) -> Records:
    """An archive of a log."""
    await archive_entries(folder, entries, "log", most)
    return await Records.open(Store(str(folder)))


async def read(records: Records, first: int, last: int, part: str = "") -> list[Entry]:
    """The messages from a position to another whose subject contains a text."""
    found = records.entries(first, last, lambda subject: part in subject)
    return [entry async for entries in found for entry in entries]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 90), min_size=COUNT, max_size=COUNT), st.data())
def test_any_part_of_a_log_is_read_by_position_and_by_time(
    gaps: list[int], data: st.DataObject
) -> None:
    entries = log_of(gaps)
    first = data.draw(st.integers(1, COUNT))
    last = data.draw(st.integers(first, COUNT + 3))
    time = LATE + timedelta(seconds=data.draw(st.integers(-2, sum(gaps) + 2)))

    async def check(folder: Path) -> None:
        records = await archived(folder, entries)
        wanted = entries[first - 1 : last]
        assert await read(records, first, last) == wanted
        own = [entry for entry in wanted if ".2.X" in entry.subject]
        assert await read(records, first, last, ".2.X") == own
        newest = [
            entry
            async for some in records.newest(last, first, lambda subject: ".2.X" in subject)
            for entry in reversed(some)
        ]
        assert newest == own[::-1]
        assert await records.position_before(time) == sum(each.time <= time for each in entries)
        assert await records.time_of(first) == entries[first - 1].time

    with TemporaryDirectory() as name:
        asyncio.run(check(Path(name)))


async def test_a_folder_without_an_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"there is none: it has no log\.json"):
        await Records.open(Store(str(tmp_path)))


async def test_a_missing_segment_or_manifest_is_found_by_whoever_reads_there(
    tmp_path: Path,
) -> None:
    entries = log_of([1] * COUNT)
    await archived(tmp_path, entries)
    manifests = sorted((tmp_path / "manifests").iterdir())
    segments = sorted((tmp_path / "segments").glob("*/*"), key=lambda path: path.name)

    # given a segment that is damaged, then what lies before is read
    content = segments[2].read_bytes()
    segments[2].write_bytes(content[:-1] + b"?")
    records = await Records.open(Store(str(tmp_path)))
    end = int(manifests[2].stem) - 1
    assert await read(records, 1, end) == entries[:end]
    with pytest.raises(Damaged, match=r"SHA-256 is another one; see 'nodepool log verify'"):
        await read(records, 1, COUNT)
    segments[2].write_bytes(content)

    # given a manifest that is gone
    manifests[1].unlink()
    records = await Records.open(Store(str(tmp_path)))
    first, last = int(manifests[1].stem), int(manifests[2].stem) - 1
    for begin, until in ((1, COUNT), (first, last), (1, first), (last, last)):
        with pytest.raises(Damaged, match=r"positions \d+ to \d+ are missing"):
            await read(records, begin, until)
