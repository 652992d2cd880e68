"""Snapshots on a real server: what is stored is used only if it is whole and of this log."""

import asyncio
import hashlib
import json
import tracemalloc
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from bus.harness import connected, limit, outcome, read_all, send, serving, until
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.local.server import NatsServer
from nodepool.nats import api
from nodepool.nats.connection import Connection
from nodepool.nats.errors import Conflict
from nodepool.nats.publisher import Publisher
from nodepool.nats.snapshots import BYTES_MAX, CHUNK_BYTES, restore, save, stored_position
from nodepool.nats.streams import SNAPSHOTS, STREAM, provision, stream_info
from quota.decide import SERVICE as QUOTA
from quota.state import State

MANIFEST = "np-snapshot.quota.manifest"
MEGABYTE = 1 << 20


async def send_several(connection: Connection, first: int, last: int) -> None:
    """Sends commands, and returns once each has its outcome."""
    for number in range(first, last):
        await send(connection, limit(number), f"c{number}")
        await outcome(connection, f"c{number}")


async def opened(connection: Connection) -> Publisher:
    publisher = Publisher(connection)
    await publisher.open()
    return publisher


async def goes_to(connection: Connection) -> int:
    """The position up to which the snapshot goes that is stored; 0 for none."""
    return await stored_position(connection, "quota", await provision(connection))


async def subjects(connection: Connection) -> set[str]:
    """Every subject of the stream of snapshots that holds something."""
    return {entry.subject for entry in await read_all(connection, SNAPSHOTS)}


# --- when it is saved ---------------------------------------------------------------------------


def test_a_service_that_is_restarted_again_and_again_has_a_snapshot_too(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with connected(server.url) as connection:
            # given a service that never runs long enough to handle much
            for run in range(8):
                async with serving(QUOTA, server, tmp_path / f"{run}.log", snapshot_after=60):
                    await send_several(connection, 3 * run, 3 * run + 3)
                if await goes_to(connection):
                    break

            # when the log has grown by what a snapshot may lie behind
            # then there is one
            assert await goes_to(connection) >= 60

    asyncio.run(story())


def test_the_stream_of_snapshots_is_made_and_filled_again_when_it_is_deleted(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        log = tmp_path / "one.log"
        async with (
            connected(server.url) as connection,
            serving(QUOTA, server, log, snapshot_after=20),
        ):
            # given a service with a snapshot
            await send_several(connection, 0, 10)
            await until(lambda: is_stored(connection))

            # when the stream is deleted, and nothing else happens
            await api.request(connection, f"$JS.API.STREAM.DELETE.{SNAPSHOTS}")

            # then there is a snapshot again
            await until(lambda: is_stored(connection))

    asyncio.run(story())


async def is_stored(connection: Connection) -> bool:
    """Whether there is a snapshot of this log."""
    info = await stream_info(connection, STREAM)
    return info is not None and await stored_position(connection, "quota", info.log) > 0


def test_chunks_of_a_snapshot_that_was_never_completed_are_removed(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with connected(server.url) as connection:
            # given chunks of a snapshot whose service was killed while it saved
            for number in range(3):
                await api.publish(connection, f"np-snapshot.quota.0123456789ab.{number}", b"left")
            await api.publish(connection, "np-snapshot.fleet.0123456789ab.0", b"of another service")

            # when the next snapshot is saved
            log, publisher = await provision(connection), await opened(connection)
            await save(connection, publisher, QUOTA, Replica(QUOTA), log)

            # then nothing is left but that one, and what belongs to others
            manifest = json.loads(await content(connection, MANIFEST))
            chunk = f"np-snapshot.quota.{manifest['id']}.0"
            other = "np-snapshot.fleet.0123456789ab.0"
            assert await subjects(connection) == {MANIFEST, chunk, other}

    asyncio.run(story())


def test_of_snapshots_that_are_saved_at_once_one_is_valid_and_whole(server: NatsServer) -> None:
    async def story() -> None:
        async with connected(server.url) as connection:
            # given replicas of a service that both save
            log, publisher = await provision(connection), await opened(connection)
            saves = [save(connection, publisher, QUOTA, Replica(QUOTA), log) for _ in range(4)]

            # when they do so at the same time
            results = await asyncio.gather(*saves, return_exceptions=True)

            # then the others are refused, and what is stored is whole
            refused = [result for result in results if isinstance(result, Conflict)]
            assert len(refused) < len(saves)
            assert len(refused) + results.count(0) == len(saves)
            manifest = json.loads(await content(connection, MANIFEST))
            assert f"np-snapshot.quota.{manifest['id']}.0" in await subjects(connection)

    asyncio.run(story())


async def content(connection: Connection, subject: str) -> bytes:
    entry = await api.last_message(connection, SNAPSHOTS, subject)
    assert entry is not None
    return entry.content


# --- what is not used ---------------------------------------------------------------------------

SHA = "0" * 64


def manifest(**fields: object) -> bytes:
    """A manifest as another program may write it."""
    whole: dict[str, object] = {
        "id": "0123456789ab",
        "log": "",
        "chunks": 1,
        "bytes": 100,
        "committed": 1,
        "expected_sequence": 2,
        "sha256": SHA,
    }
    return json.dumps({**whole, **fields}).encode()


@pytest.mark.parametrize(
    ("stored", "cause"),
    [
        pytest.param(b"[" * 100_000, "has 100000 bytes", id="too long"),
        pytest.param(b"[" * 900, "no JSON", id="nested too deep"),
        pytest.param(b"\xff\xfe", "no JSON", id="no text"),
        pytest.param(b"[]", "cannot be read", id="a list"),
        pytest.param(b'{"id": 1}', "id, log, chunks", id="another form"),
        pytest.param(manifest().replace(b": 100,", b": 1e999,"), "bytes", id="infinitely large"),
        pytest.param(manifest(bytes="9" * 500), "bytes", id="a number as a text"),
        pytest.param(manifest(chunks=2_000_000), "2000000 chunks of 100 bytes", id="chunks"),
        pytest.param(
            manifest(chunks=2_000_000, bytes=2_000_000 * CHUNK_BYTES), "bytes", id="too large"
        ),
        pytest.param(manifest(committed=-1), "committed", id="a position before the first"),
        pytest.param(manifest(expected_sequence=1 << 63), "expected_sequence", id="too far"),
        pytest.param(manifest(id="*.>"), "id", id="an id that is no token"),
        pytest.param(manifest(sha256=""), "sha256", id="no digest"),
        pytest.param(manifest(log="other"), "of the log 'other'", id="of another log"),
    ],
)
def test_a_manifest_is_checked_before_anything_that_it_names_is_read(
    server: NatsServer, stored: bytes, cause: str
) -> None:
    async def story() -> None:
        async with connected(server.url) as connection:
            # given a manifest that no service wrote
            log = await provision(connection)
            await api.publish(connection, MANIFEST, stored)

            # when a service starts
            tracemalloc.start()
            replica, unused = await restore(connection, QUOTA, log)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()

            # then it begins at the log's start, which cost little, and the cause is known
            assert replica.committed == 0
            assert cause in unused
            assert peak < 4 * MEGABYTE

    asyncio.run(story())


async def forged(connection: Connection, lines: bytes, **fields: object) -> Mapping[str, object]:
    """The manifest, as it is stored now, of a snapshot with this content and of this log."""
    await send(connection, limit(1), "c1")
    await outcome(connection, "c1")
    log = await read_all(connection)
    record = next(entry for entry in log if entry.subject == "np.commit.quota")
    position = json.loads(record.content)["position"]
    whole: dict[str, object] = {
        "log": await provision(connection),
        "bytes": len(lines),
        "chunks": -(-len(lines) // CHUNK_BYTES),
        "committed": position,
        "expected_sequence": record.position,
        "sha256": hashlib.sha256(lines).hexdigest(),
    }
    await api.publish(connection, MANIFEST, manifest(**{**whole, **fields}))
    return whole


BOMB = zlib.compress(bytes(100 * MEGABYTE), 9)
LINES = b"\n".join((*dump(Replica(QUOTA).safe), b""))
"""A whole snapshot of the state before the first message."""


@pytest.mark.parametrize(
    ("content", "packed", "cause"),
    [
        pytest.param(LINES, None, "chunk 0 of 1 is missing", id="missing"),
        pytest.param(LINES, b"not packed", "cannot be decompressed", id="not packed"),
        pytest.param(LINES, zlib.compress(LINES)[:-9], "is cut short", id="cut short"),
        pytest.param(LINES, BOMB, f"more than {CHUNK_BYTES} bytes", id="a hundred megabytes"),
        pytest.param(LINES, zlib.compress(LINES[:-1] + b"\n\n"), "line cannot be read", id="more"),
        pytest.param(LINES, zlib.compress(LINES.replace(b"Pool", b"Lake")), "shape", id="a shape"),
        pytest.param(b"x" * 9, zlib.compress(b"xxxxxxxx\n"), "line cannot be read", id="no line"),
        pytest.param(
            LINES, zlib.compress(LINES[:-1] + b"\x00"), "not those that were saved", id="an end"
        ),
    ],
)
def test_chunks_are_checked_against_the_manifest(
    server: NatsServer, tmp_path: Path, content: bytes, packed: bytes | None, cause: str
) -> None:
    async def story() -> None:
        async with connected(server.url) as connection:
            # given chunks that are not what the manifest says
            async with serving(QUOTA, server, tmp_path / "quota.log"):
                await forged(connection, content)
            if packed is not None:
                await api.publish(connection, "np-snapshot.quota.0123456789ab.0", packed)

            # when a service starts
            tracemalloc.start()
            replica, unused = await restore(connection, QUOTA, await provision(connection))
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()

            # then it begins at the log's start, which cost little, and the cause is known
            assert replica.committed == 0
            assert cause in unused
            assert peak < 8 * MEGABYTE

    asyncio.run(story())


def test_the_largest_snapshot_has_more_room_than_a_large_fleet_takes() -> None:
    # given 100,000 Nodes, each with a thousand bytes, when they are saved, then they fit
    assert BYTES_MAX > 100_000 * 1_000 * 5


def test_a_whole_snapshot_of_this_log_is_used(server: NatsServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(server.url) as connection:
            # given a snapshot of a service
            async with serving(QUOTA, server, tmp_path / "one.log", snapshot_after=10) as first:
                await send_several(connection, 0, 10)
                await until(lambda: is_stored(connection))

            # when another one starts
            replica, unused = await restore(connection, QUOTA, await provision(connection))

            # then it goes on from there
            assert not unused
            assert 0 < replica.committed <= first.replica.committed
            assert isinstance(replica.state, State)

    asyncio.run(story())
