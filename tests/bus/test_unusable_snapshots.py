"""Snapshots that no service wrote, or that are damaged: none is used, and none costs much."""

import hashlib
import json
import tracemalloc
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from bus.harness import connected, limit, outcome, read_all, send, serving
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import provision
from nodepool.nats.objects.snapshots import BYTES_MAX, CHUNK_BYTES, restore
from nodepool.nats.wire.connection import Connection
from quota.decide import SERVICE as QUOTA

MANIFEST = "np-snapshot.quota.manifest"
MEGABYTE = 1 << 20
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
async def test_a_manifest_is_checked_before_anything_that_it_names_is_read(
    server: NatsServer, stored: bytes, cause: str
) -> None:
    async with connected(server.url) as connection:
        # given a manifest that no service wrote
        log = await provision(connection)
        await api.publish(connection, MANIFEST, stored)

        # when a service starts
        tracemalloc.start()
        replica, unused, _ = await restore(connection, QUOTA, log)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        # then it begins at the log's start, which cost little, and the cause is known
        assert replica.committed == 0
        assert cause in unused
        assert peak < 4 * MEGABYTE


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
async def test_chunks_are_checked_against_the_manifest(
    server: NatsServer, tmp_path: Path, content: bytes, packed: bytes | None, cause: str
) -> None:
    async with connected(server.url) as connection:
        # given chunks that are not what the manifest says
        async with serving(QUOTA, server, tmp_path / "quota.log"):
            await forged(connection, content)
        if packed is not None:
            await api.publish(connection, "np-snapshot.quota.0123456789ab.0", packed)

        # when a service starts
        tracemalloc.start()
        replica, unused, _ = await restore(connection, QUOTA, await provision(connection))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        # then it begins at the log's start, which cost little, and the cause is known
        assert replica.committed == 0
        assert cause in unused
        assert peak < 8 * MEGABYTE


def test_the_largest_snapshot_has_more_room_than_a_large_fleet_takes() -> None:
    # given 100,000 Nodes, each with a thousand bytes, when they are saved, then they fit
    assert BYTES_MAX > 100_000 * 1_000 * 5
