"""Snapshots of another release, on a real server: read where nothing else makes the state."""

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bus.harness import connected, outcome, send, serving, until
from bus.harness import limit as limited
from bus.test_cut_logs import cut, send_several
from bus.test_snapshots import MANIFEST, content, first_read, goes_to, logged
from nodepool.engine.snapshot import dump, load
from nodepool.host.version import version_of
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import SNAPSHOTS, STREAM
from nodepool.nats.objects.snapshots import chunk_subject, unpack_chunk
from nodepool.nats.wire.connection import Connection
from quota.decide import SERVICE as QUOTA
from quota.state import State

Schema = dict[str, list[str]]
Change = Callable[[Schema, list[list[Any]]], None]
"""What differs in the classes of another release, and so in the lines that it writes."""


def of_an_older_release(classes: Schema, lines: list[list[Any]]) -> None:
    """A State without `numbers`, and a Ledger with a field that is gone since."""
    classes["State"] = [line for line in classes["State"] if not line.startswith("numbers:")]
    classes["Ledger"].append("spare: int")
    lines[:] = [line for line in lines if line[0] != "state.numbers"]
    for line in lines:
        if line[0] == "state.ledgers" and len(line) == 3:
            line[2].append(7)


def of_another_meaning(classes: Schema, lines: list[list[Any]]) -> None:
    """A Ledger whose limit was a number with a fraction."""
    ledger = classes["Ledger"]
    ledger[:] = [line.replace("limit: int", "limit: float") for line in ledger]


async def rewrite(connection: Connection, change: Change, release: str = "0.0.1") -> int:
    """Store the snapshot of quota as another release had it; return up to where it goes."""
    manifest = json.loads(await content(connection, MANIFEST))
    chunks = b""
    for number in range(manifest["chunks"]):
        subject = chunk_subject("quota", manifest["id"], number)
        entry = await api.last_message(connection, SNAPSHOTS, subject)
        assert entry is not None
        chunks += unpack_chunk(entry.content, number)
    # A snapshot may have changes after the whole; the older one has none.
    (_, schema), *parsed = map(json.loads, dump(load(State, chunks.splitlines())))
    classes = {name: fields for name, *fields in schema}
    change(classes, parsed)
    first = ["schema", [[name, *classes[name]] for name, *_ in schema]]
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in (first, *parsed))
    manifest |= {
        "id": "0123456789ab",
        "chunks": 1,
        "bytes": len(lines),
        "sha256": hashlib.sha256(lines).hexdigest(),
        "release": release,
    }
    await api.publish(connection, chunk_subject("quota", manifest["id"], 0), zlib.compress(lines))
    await api.publish(connection, MANIFEST, json.dumps(manifest).encode())
    return int(manifest["committed"])


async def given_a_snapshot(server: NatsServer, folder: Path, connection: Connection) -> State:
    """What a service has folded that has stopped and has a whole snapshot of all of it."""
    async with serving(QUOTA, server, folder / "first.log", snapshot_after=10_000) as runtime:
        await send_several(connection, 10)
    async with serving(QUOTA, server, folder / "second.log", snapshot_after=5) as runtime:
        await until(lambda: is_stored(connection))
    state: State = runtime.replica.safe.state
    return state


async def is_stored(connection: Connection) -> bool:
    return await goes_to(connection) > 0


async def trim_to(connection: Connection, committed: int) -> int:
    """Cut the head of the log up to a position; return where the log begins."""
    return await cut(connection, await api.last_position(connection, STREAM) - committed)


async def test_a_service_begins_at_a_snapshot_of_an_older_release_if_the_log_has_lost_its_head(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a trimmed log, and a snapshot that an older release has saved
        state = await given_a_snapshot(server, tmp_path, connection)
        committed = await rewrite(connection, of_an_older_release)
        assert await trim_to(connection, committed) > 1

        # when a service of this release starts
        log = tmp_path / "new.log"
        async with serving(QUOTA, server, log) as runtime:
            # then it is ready with what both releases have, and says what has changed
            assert runtime.is_ready()
            assert runtime.replica.safe.state == state
            (changes,) = logged(log, "snapshot converted", "changes")
            assert changes == ["State.numbers is new", "Ledger.spare is gone"]

            # and it goes on, and saves a snapshot of its own shape at once
            await send(connection, limited(99), "later")
            await outcome(connection, "later")
            await until(lambda: reaches(connection, committed + 1))
            state = runtime.replica.safe.state
            manifest = json.loads(await content(connection, MANIFEST))
            assert manifest["id"] != "0123456789ab"
            assert (manifest["chunks"], manifest["release"]) == (1, version_of())

        # and the next one begins there
        log = tmp_path / "next.log"
        async with serving(QUOTA, server, log) as runtime:
            assert runtime.replica.safe.state == state
        assert logged(log, "snapshot converted", "changes") == []


async def reaches(connection: Connection, position: int) -> bool:
    return await goes_to(connection) >= position


async def test_a_service_reads_the_whole_log_as_long_as_it_is_there(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a whole log, and a snapshot that an older release has saved
        state = await given_a_snapshot(server, tmp_path, connection)
        await rewrite(connection, of_an_older_release)

        # when a service of this release starts
        log = tmp_path / "new.log"
        async with serving(QUOTA, server, log) as runtime:
            # then it reads all of the log, which is always right
            assert await first_read(connection) == [1]
            assert runtime.replica.safe.state == state
        reason = "it is of another shape than this release has"
        assert logged(log, "snapshot not used", "cause") == [reason]


@pytest.mark.parametrize(
    ("change", "release", "reason"),
    [
        pytest.param(
            of_another_meaning,
            "0.0.1",
            "it is of another shape than this release has: Ledger.limit: its type was float | None"
            " and is int | None; go on with release 0.0.1, which has saved it",
            id="what may have another meaning",
        ),
        pytest.param(
            of_an_older_release,
            "99.0.0",
            "release 99.0.0 has saved it, and this is ",
            id="what a newer release has saved",
        ),
    ],
)
async def test_a_service_that_cannot_read_a_snapshot_says_why_and_does_nothing(
    server: NatsServer, tmp_path: Path, change: Change, release: str, reason: str
) -> None:
    async with connected(server.url) as connection:
        # given a trimmed log, and a snapshot that this release cannot read
        await given_a_snapshot(server, tmp_path, connection)
        committed = await rewrite(connection, change, release)
        stored = await content(connection, MANIFEST)
        first = await trim_to(connection, committed)

        # when a service of this release starts
        async with serving(QUOTA, server, tmp_path / "new.log", wait=False) as runtime:
            await until(lambda: reason in (runtime.obstacle() or ""))

            # then it is not ready, and leaves the snapshot for the release that can read it
            assert f"the log begins at position {first}" in (runtime.obstacle() or "")
            assert not runtime.ready.is_set()
        assert await content(connection, MANIFEST) == stored


async def test_a_replica_that_began_at_a_converted_snapshot_works_with_one_that_did_not(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a replica that has read the whole log
        await given_a_snapshot(server, tmp_path, connection)
        async with serving(QUOTA, server, tmp_path / "one.log", snapshots="ignore") as one:
            # when the log is trimmed, and another one begins at a snapshot of an older release
            committed = await rewrite(connection, of_an_older_release)
            await trim_to(connection, committed)
            async with serving(QUOTA, server, tmp_path / "two.log") as two:
                await send_several_more(connection, 3)
                await until(lambda: two.replica.committed == one.replica.committed)

                # then both go on
                assert (one.obstacle(), two.obstacle()) == (None, None)
                assert list(dump(one.replica.safe)) == list(dump(two.replica.safe))


async def send_several_more(connection: Connection, count: int) -> None:
    for number in range(count):
        await send(connection, limited(50 + number), f"more{number}")
        await outcome(connection, f"more{number}")
