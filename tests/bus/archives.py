"""Archivers at work, and an audit of what they have archived that shares no code with them."""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq

from archiver.host.settings import ArchiverSettings, variable_of
from archiver.main import Archiver
from bus.harness import Addressed, ReplicaProcess, fill, launched, read_all, until
from nodepool.contract.log import Entry
from nodepool.host.settings import Settings
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.connection import Connection
from testbed.ports import free_port

MESSAGES_OF_A_PART = 400
"""Enough for a few segments of SMALL bytes."""
SMALL = 40_000
"""A size of segments that some hundred messages fill."""
SUBJECTS = (
    "np.cmd.acme.prod.train.ScaleNodePool",
    "np.evt.fleet.acme.prod.p~1.Noted",
    "np.commit.quota",
    "np.dead.quota",
)


def messages(count: int, start: int = 0) -> list[tuple[str, bytes]]:
    """So many messages of all kinds, each unlike any other."""
    return [
        (
            SUBJECTS[number % len(SUBJECTS)],
            json.dumps(
                {"id": f"m{number}", "correlationid": "c", "noise": os.urandom(99).hex()}
            ).encode(),
        )
        for number in range(start, start + count)
    ]


async def fill_with_messages(connection: Connection, count: int, start: int = 0) -> None:
    """Stores so many messages, in batches as services do."""
    await fill(connection, messages(count, start))


@asynccontextmanager
async def archiving(
    server: Addressed,
    archive: Path | str,
    log: Path,
    access: Access = NO_ACCESS,
    *,
    trims: bool = False,
    **numbers: int,
) -> AsyncIterator[Archiver]:
    """An archiver at work in this process."""
    service = Settings(url=server.url, log_file=str(log), access=access)
    numbers = {"segment_bytes": SMALL, "quiet_seconds": 1, **numbers}
    archiver = Archiver(ArchiverSettings(service, str(archive), trims=trims, **numbers))
    stop = asyncio.Event()
    task = asyncio.create_task(archiver.run(stop))
    try:
        yield archiver
    finally:
        stop.set()
        await task


@contextmanager
def launched_archiver(
    server: Addressed,
    archive: Path | str,
    folder: Path,
    others: Mapping[str, str] = MappingProxyType({}),
    **numbers: int,
) -> Iterator[ReplicaProcess]:
    """An archiver as a process of its own."""
    numbers = {"segment_bytes": SMALL, "quiet_seconds": 1, **numbers}
    settings = {"NODEPOOL_ARCHIVE": str(archive)} | {
        variable_of(name): str(number) for name, number in numbers.items()
    }
    with launched(
        "archiver", server, folder, free_port(), others={**settings, **others}
    ) as replica:
        yield replica


async def archived_to(archive: Path, position: int, within_s: float = 60) -> None:
    """Returns once the archive goes up to a position."""
    await until(lambda: end_of(archive) >= position, within_s)


def end_of(archive: Path) -> int:
    """Up to which position an archive in a folder goes; 0 where it has no manifest."""
    names = sorted((archive / "manifests").glob("*.json"))
    return int(json.loads(names[-1].read_text())["last"]) if names else 0


def archived(archive: Path) -> list[dict[str, Any]]:
    """Every row of every segment that a manifest names, in the order of the manifests."""
    rows: list[dict[str, Any]] = []
    for path in sorted((archive / "manifests").glob("*.json")):
        named = json.loads(path.read_text())["object"]
        content = (archive / named["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == named["sha256"]
        found = pq.read_table(archive / named["name"], partitioning=None).to_pylist()
        day = named["name"].partition("day=")[2][:10]
        assert {f"{row['time']:%Y-%m-%d}" for row in found} == {day}
        rows += found
    return rows


async def audit(connection: Connection, archive: Path) -> int:
    """Assert that an archive holds each message of the log once, up to the end of the archive.

    Return the number of these messages.

    Services that are quiet commit now and then, so the log may go on after the archive ends.
    """
    entries, rows = (await read_all(connection))[: end_of(archive)], archived(archive)

    assert [row["position"] for row in rows] == [entry.position for entry in entries]
    for entry, row in zip(entries, rows, strict=True):
        assert as_entry(row) == entry
    return len(entries)


def as_entry(row: dict[str, Any]) -> Entry:
    """A row as the message that it was."""
    return Entry(row["position"], row["time"], row["subject"], row["content"], dict(row["headers"]))
