"""Snapshots on a real server: when one is saved, and whether a service begins at it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from bus.harness import connected, limit, lines_of, outcome, restart, send, serving, until
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import count_lines, dump
from nodepool.host.hosting import AnyRuntime
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.consumers import SERVICE
from nodepool.nats.log.publisher import Bus, Publisher
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, provision, stream_info, streams
from nodepool.nats.objects.saving import EXPIRING, LINES_MAX, Storing, save
from nodepool.nats.objects.snapshots import Newest, restore, stored_position
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict
from quota.decide import SERVICE as QUOTA
from quota.state import State

MANIFEST = "np-snapshot.quota.manifest"


async def send_several(connection: Connection, first: int, last: int) -> None:
    """Sends commands, and returns once each has its outcome."""
    for number in range(first, last):
        await send(connection, limit(number), f"c{number}")
        await outcome(connection, f"c{number}")


async def processed(connection: Connection, runtime: AnyRuntime, first: int, last: int) -> None:
    """Sends commands, and returns once the replica knows that all of them are committed."""
    before = runtime.replica.committed
    await send_several(connection, first, last)
    await until(lambda: runtime.replica.committed > before and runtime.replica.oldest is None)


async def opened(connection: Connection) -> Publisher:
    publisher = Publisher(connection)
    await publisher.open()
    return publisher


async def goes_to(connection: Connection) -> int:
    """The position up to which the snapshot goes that is stored; 0 for none."""
    return await stored_position(connection, "quota", await provision(connection))


async def subjects(connection: Connection) -> set[str]:
    """Every subject of the stream of snapshots that holds something."""
    asked = {"subjects_filter": ">"}
    state = (await api.request(connection, f"$JS.API.STREAM.INFO.{SNAPSHOTS}", asked))["state"]
    assert isinstance(state, dict)
    return {*state["subjects"]}


# --- when it is saved ---------------------------------------------------------------------------


async def test_a_service_that_is_restarted_again_and_again_has_a_snapshot_too(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a service that never runs long enough to handle much
        for run in range(8):
            async with serving(QUOTA, server, tmp_path / f"{run}.log", snapshot_after=60):
                await send_several(connection, 3 * run, 3 * run + 3)

            # when it has stopped, then no start reads much of the log again
            assert await api.last_position(connection, STREAM) - await goes_to(connection) < 30


async def test_the_stream_of_snapshots_is_made_and_filled_again_when_it_is_deleted(
    server: NatsServer, tmp_path: Path
) -> None:
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


async def test_the_stream_of_snapshots_of_an_earlier_release_is_brought_up_to_date(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a snapshot in a stream as earlier releases made it
        config = {**streams()[SNAPSHOTS], "allow_msg_ttl": False}
        await api.request(connection, f"$JS.API.STREAM.DELETE.{SNAPSHOTS}")
        await api.request(connection, f"$JS.API.STREAM.CREATE.{SNAPSHOTS}", config)
        await api.publish(connection, "np-snapshot.quota.0123456789ab.0", b"old")

        # when the streams are provisioned, and the next snapshot is saved
        log, publisher = await provision(connection), await opened(connection)
        await save(Storing(Bus(connection, publisher, log)), QUOTA, Replica(QUOTA))

        # then what is not needed any more goes away there too
        manifest = json.loads(await content(connection, MANIFEST))
        chunk = f"np-snapshot.quota.{manifest['id']}.0"
        await until(lambda: _has_only(connection, {MANIFEST, chunk}))


async def errors(connection: Connection) -> object:
    """How many requests the server counts as errors, of which an alert tells."""
    usage = (await api.request(connection, "$JS.API.INFO"))["api"]
    assert isinstance(usage, dict)
    return usage.get("errors", 0)


async def test_a_stored_snapshot_is_there_however_often_the_server_is_killed(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        for run in range(3):
            # given chunks that are about to expire, and what was stored after them
            for number in range(20):
                chunk = f"np-snapshot.quota.{run}-{number}.0"
                await api.publish(connection, chunk, b"x" * 3_000)
                await api.publish(connection, chunk, b"", headers=EXPIRING)
                await api.publish(connection, MANIFEST, b"%d" % (100 * run + number))

            # when the server is killed, then the newest is there
            await restart(server)
            newest = await api.leaders_message(connection, SNAPSHOTS, MANIFEST)
            assert newest is not None
            assert newest.content == b"%d" % (100 * run + 19)


async def test_looking_for_a_snapshot_that_is_not_there_is_no_error(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a log without snapshots
        log = await provision(connection)
        before = await errors(connection)

        # when a standby looks for one
        found = await stored_position(connection, "quota", log)

        # then there is none, and the server counts no error
        assert found == 0
        assert await errors(connection) == before


async def is_stored(connection: Connection) -> bool:
    """Whether there is a snapshot of this log."""
    info = await stream_info(connection, STREAM)
    return info is not None and await stored_position(connection, "quota", info.log) > 0


async def test_chunks_of_a_snapshot_that_was_never_completed_are_removed(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given chunks of a snapshot whose service was killed while it saved
        for number in range(3):
            await api.publish(connection, f"np-snapshot.quota.0123456789ab.{number}", b"left")
        await api.publish(connection, "np-snapshot.fleet.0123456789ab.0", b"of another service")

        # when the next snapshot is saved
        log, publisher = await provision(connection), await opened(connection)
        await save(Storing(Bus(connection, publisher, log)), QUOTA, Replica(QUOTA))

        # then nothing is left but that one, and what belongs to others
        manifest = json.loads(await content(connection, MANIFEST))
        chunk = f"np-snapshot.quota.{manifest['id']}.0"
        other = "np-snapshot.fleet.0123456789ab.0"
        await until(lambda: _has_only(connection, {MANIFEST, chunk, other}))
        assert await content(connection, other) == b"of another service"


async def _has_only(connection: Connection, expected: set[str]) -> bool:
    return await subjects(connection) == expected


async def test_of_snapshots_that_are_saved_at_once_one_is_valid_and_whole(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given replicas of a service that both save
        log, publisher = await provision(connection), await opened(connection)
        storing = Storing(Bus(connection, publisher, log))
        saves = [save(storing, QUOTA, Replica(QUOTA)) for _ in range(4)]

        # when they do so at the same time
        results = await asyncio.gather(*saves, return_exceptions=True)

        # then the others are refused, and what is stored is whole
        refused = [result for result in results if isinstance(result, Conflict)]
        assert len(refused) < len(saves)
        assert len(refused) + results.count(0) == len(saves)
        manifest = json.loads(await content(connection, MANIFEST))
        assert f"np-snapshot.quota.{manifest['id']}.0" in await subjects(connection)


async def test_a_snapshot_adds_what_has_changed_to_the_one_before(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a replica that has saved a snapshot, and has gone on
        log, publisher = await provision(connection), await opened(connection)
        async with serving(QUOTA, server, tmp_path / "one.log") as runtime:
            await processed(connection, runtime, 0, 20)
            storing = Storing(Bus(connection, publisher, log), newest=Newest())
            await save(storing, QUOTA, runtime.replica)
            first = json.loads(await content(connection, MANIFEST))
            await processed(connection, runtime, 20, 22)

            # when it saves again
            await save(storing, QUOTA, runtime.replica)
            second = json.loads(await content(connection, MANIFEST))

            # then only the changes are added, and the whole makes its state
            assert (second["id"], second["chunks"]) == (first["id"], first["chunks"] + 1)
            assert 0 < second["bytes"] - first["bytes"] < first["bytes"]
            newest = Newest[State]()
            restored, unused, _ = await restore(connection, QUOTA, log, newest)
            assert not unused
            assert list(dump(restored.safe)) == list(dump(runtime.replica.safe))

            # and one that begins at it adds to it
            await processed(connection, runtime, 22, 23)
            await save(replace(storing, newest=newest), QUOTA, runtime.replica)
            third = json.loads(await content(connection, MANIFEST))
            assert (third["id"], third["chunks"]) == (first["id"], first["chunks"] + 2)

            # and the first one, which does not know of that, saves a whole one
            await processed(connection, runtime, 23, 24)
            await save(storing, QUOTA, runtime.replica)
            last = json.loads(await content(connection, MANIFEST))
        assert (last["id"] != first["id"], last["chunks"]) == (True, 1)
        restored, unused, _ = await restore(connection, QUOTA, log)
        assert (restored.committed, unused) == (last["committed"], "")


async def test_a_snapshot_whose_entries_have_changed_often_is_followed_by_a_whole_one(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a replica whose few entries change again and again
        log, publisher = await provision(connection), await opened(connection)
        async with serving(QUOTA, server, tmp_path / "one.log") as runtime:
            storing = Storing(Bus(connection, publisher, log), newest=Newest())

            # when it saves each time
            for number in range(12):
                await processed(connection, runtime, 4 * number, 4 * number + 4)
                await save(storing, QUOTA, runtime.replica)
                newest = storing.newest
                assert newest is not None
                assert newest.saved is not None
                lines = newest.saved.lines

                # then what is stored stays within a bound
                assert lines <= 1 + (LINES_MAX + 2) * count_lines(runtime.replica.safe)


async def content(connection: Connection, subject: str) -> bytes:
    entry = await api.last_message(connection, SNAPSHOTS, subject)
    assert entry is not None
    return entry.content


# --- whether it is used -------------------------------------------------------------------------


async def test_a_service_that_is_to_ignore_its_snapshot_reads_all_of_the_log_and_replaces_it(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a snapshot of a service
        async with serving(QUOTA, server, tmp_path / "one.log", snapshot_after=10):
            await send_several(connection, 0, 10)
            await until(lambda: is_stored(connection))
        before = await content(connection, MANIFEST)
        committed = json.loads(before)["committed"]
        assert committed >= 10

        # when another one starts, then it goes on from there, and leaves the snapshot alone
        async with serving(QUOTA, server, tmp_path / "two.log", snapshot_after=35):
            await send_several(connection, 10, 11)
            assert await first_read(connection) == [committed + 1]
        assert await content(connection, MANIFEST) == before

        # when one starts that is to ignore it
        log = tmp_path / "three.log"
        async with serving(QUOTA, server, log, snapshot_after=35, snapshots="ignore"):
            # then it reads the log from its first position on
            assert await first_read(connection) == [1]

            # and saves another snapshot in the place of that one, and says so
            await until(lambda: is_another(connection, before))
            await until(lambda: logged(log, "snapshot saved", "position") != [])
        after = json.loads(await content(connection, MANIFEST))
        assert after["committed"] > committed
        assert logged(log, "snapshot not used", "cause") == ["NODEPOOL_SNAPSHOTS is ignore"]
        assert logged(log, "snapshot saved", "position") == [after["committed"]]


async def first_read(connection: Connection) -> list[int]:
    """The position at which each replica of quota that is at work began to read the log."""
    reply = await api.request(connection, f"$JS.API.CONSUMER.LIST.{STREAM}")
    consumers = reply["consumers"]
    assert isinstance(consumers, list)
    configs = [each["config"] for each in consumers]
    return sorted(
        config.get("opt_start_seq", 1)
        for config in configs
        if config["metadata"].get(SERVICE) == "quota"
    )


async def is_another(connection: Connection, before: bytes) -> bool:
    return await content(connection, MANIFEST) != before


def logged(log: Path, event: str, field: str) -> list[object]:
    """A field of each line of a log with this event."""
    return [line[field] for line in lines_of(log) if line["event"] == event]


async def test_a_whole_snapshot_of_this_log_is_used(server: NatsServer, tmp_path: Path) -> None:
    async with connected(server.url) as connection:
        # given a snapshot of a service
        async with serving(QUOTA, server, tmp_path / "one.log", snapshot_after=10) as first:
            await send_several(connection, 0, 10)
            await until(lambda: is_stored(connection))

        # when another one starts
        replica, unused, _ = await restore(connection, QUOTA, await provision(connection))

        # then it goes on from there
        assert not unused
        assert 0 < replica.committed <= first.replica.committed
        assert isinstance(replica.state, State)
