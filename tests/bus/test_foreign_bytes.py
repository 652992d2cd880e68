"""Subjects and headers of bytes that are no text: nothing stops, and all that follows is read."""

import asyncio
import json
from pathlib import Path

import pytest

from bus.cli import watching
from bus.harness import connected, fill, limit, outcome, read, send, serving
from bus.raw import RawSender, raw_sender
from bus.test_client import say
from nodepool.contract.events import ClusterRegistered, CWOverQuota
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.filtering import BEHIND
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, provision
from nodepool.nats.objects.snapshots import restore
from quota.decide import SERVICE as QUOTA
from support.constants import ZONE

TOKENS = {
    "no UTF-8": b"\xff\xfe",
    "half a character": b"\xe2\x82",
    "a surrogate": b"\xed\xa0\x80",
    "a vertical tab": b"a\x0bb",
    "a form feed": b"\x0c",
    "a null": b"\x00",
    "long": b"\xff" * 900,
}
HEADERS = {
    "no version": b"\xff\xfe\xfd",
    "a status that is no text": b"NATS/1.0 \xff\xff\xff \xfe\r\n\r\n",
    "a status of the server": b"NATS/1.0 503 No Responders\r\nStatus: 404\r\n\r\n",
    "a value that is no text": b"NATS/1.0\r\nce-id: \xff\xfe\r\n\r\n",
    "a name that is no text": b"NATS/1.0\r\n\xff: 1\r\n \r\n:\r\n\r\n",
    "a version alone": b"NATS/1.0",
}
PLAIN = b"np.cmd.acme.prod.p.ScaleNodePool"
STRANGE = {
    **{
        name: (b"np.cmd.evil." + token + b".b.ScaleNodePool", b"") for name, token in TOKENS.items()
    },
    **{name: (PLAIN, headers) for name, headers in HEADERS.items()},
}
"""A subject and headers, of which one is strange."""


async def store_strange(
    sender: RawSender, prefix: bytes = b"np.cmd.evil.", end: bytes = b""
) -> int:
    """Stores a message with each strange token and with each strange header; how many those are."""
    for token in TOKENS.values():
        await sender.store(prefix + token + end)
    for number, headers in enumerate(HEADERS.values()):
        await sender.store(prefix + b"h%d" % number + end, headers=headers)
    return len(TOKENS) + len(HEADERS)


# --- readers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("subject", "headers"), STRANGE.values(), ids=STRANGE)
async def test_a_live_reader_goes_on_after_bytes_that_are_no_text(
    server: NatsServer, subject: bytes, headers: bytes
) -> None:
    async with connected(server.url) as connection, raw_sender(server.url) as sender:
        # given a reader at the end of the log
        reader = Reader(connection, STREAM, ["np.cmd.*.*.*.*"])
        await reader.open()

        # when a message with such a subject or such headers is stored, and one more
        await sender.store(subject, b"1", headers)
        await sender.store(PLAIN, b"2")

        # then both are read, over the connection that there was
        entries = await read(reader, 2)
        assert [entry.content for entry in entries] == [b"1", b"2"]
        assert [len(entry.subject.split(".")) for entry in entries] == [6, 6]
        assert entries[0].subject.encode().startswith(b"np.cmd.")
        assert connection.stats["reconnects"] == 0
        await reader.close()


async def test_a_reader_that_catches_up_without_filters_reads_all_that_is_strange(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection, raw_sender(server.url) as sender:
        # given a long log with strange messages at its beginning
        count = await store_strange(sender, end=b".b.ScaleNodePool")
        await fill(connection, [("np.cmd.a.b.c.D", b"{}")] * (BEHIND + 10))

        # when it is read from the start
        reader = Reader(connection, STREAM, ["np.cmd.*.*.*.*"], wants=lambda _: True)
        await reader.open()
        entries = await read(reader, count + BEHIND + 10)

        # then all of it is read
        assert [entry.position for entry in entries] == list(range(1, count + BEHIND + 11))
        assert connection.stats["reconnects"] == 0
        await reader.close()


async def test_a_bucket_with_strange_keys_is_read_and_watched(server: NatsServer) -> None:
    async with connected(server.url) as connection, raw_sender(server.url) as sender:
        # given a bucket with strange keys
        count = await store_strange(sender, b"$KV.nodepools.evil.")

        # when its newest objects are read, and another strange one comes
        reader = Reader(connection, "KV_nodepools", ["$KV.nodepools.>"], newest=True)
        await reader.open()
        before = await read(reader, count)
        await sender.store(b"$KV.nodepools.\xfe.p", b"{}")

        # then it is read too
        (last,) = await read(reader, 1)
        assert (len(before), last.content) == (count, b"{}")
        await reader.close()


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
async def test_an_object_or_a_manifest_with_strange_headers_is_read_for_what_it_is(
    server: NatsServer, headers: bytes
) -> None:
    async with connected(server.url) as connection, raw_sender(server.url) as sender:
        # given an object, and a manifest of a snapshot, with strange headers
        await sender.store(b"$KV.nodepools.acme.prod.p", b"{}", headers)
        await sender.store(b"np-snapshot.quota.manifest", b"{}", headers)

        # when they are read
        key = "$KV.nodepools.acme.prod.p"
        entry = await api.last_message(connection, "KV_nodepools", key)
        manifest = await api.last_message(connection, SNAPSHOTS, "np-snapshot.quota.manifest")

        # then there they are, whatever their headers say, and the snapshot is none
        assert entry is not None
        assert manifest is not None
        assert (entry.subject, entry.content, manifest.content) == (key, b"{}", b"{}")
        replica, *_ = await restore(connection, QUOTA, await provision(connection))
        assert replica.committed == 0


# --- services and programs ------------------------------------------------------------------------


async def test_a_service_refuses_strange_commands_and_processes_all_that_follow(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        raw_sender(server.url) as sender,
        serving(QUOTA, server, tmp_path / "one.log"),
    ):
        # given a service at work
        await send(connection, limit(1), "first")
        await outcome(connection, "first")

        # when strange commands are stored, and a good one
        for number, token in enumerate(TOKENS.values()):
            command = {"specversion": "1.0", "id": f"t{number}", "data": {}}
            subject = b"np.cmd." + token + b"._._.SetQuota"
            await sender.store(subject, json.dumps(command).encode())
        await store_strange(sender, b"np.evt.quota.evil.", b".c.QuotaChecked")
        await send(connection, limit(2), "last")

        # then all of them have an outcome
        for number in range(len(TOKENS)):
            refusal = await outcome(connection, f"t{number}")
            assert refusal["type"] == "CommandRefused"
        assert (await outcome(connection, "last"))["type"] == "CommandAccepted"

    # and a service that starts anew goes on after them
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "two.log"),
    ):
        await send(connection, limit(3), "anew")
        assert (await outcome(connection, "anew"))["type"] == "CommandAccepted"


def over_quota(message: str) -> CWOverQuota:
    return CWOverQuota(org="demo", cluster="demo", pool="p", message=message)


async def test_a_watch_of_events_goes_on_after_strange_ones(server: NatsServer) -> None:
    columns = ("-o", "custom-columns=MESSAGE:.message")
    async with connected(server.url) as connection, raw_sender(server.url) as sender:
        await say(connection, ClusterRegistered(org="demo", cluster="demo", zone=ZONE))
        with watching(server, "events", "-w", *columns) as watch:
            assert watch.stdout is not None
            # given a watch of all events of a cluster, and one that it has shown
            await say(connection, over_quota("before"))
            lines = [await asyncio.to_thread(watch.stdout.readline) for _ in range(2)]

            # when strange events are stored, and a good one
            await store_strange(sender, b"np.evt.quota.demo.demo.", b".CWOverQuota")
            await say(connection, over_quota("after"))

            # then it is shown
            lines.append(await asyncio.to_thread(watch.stdout.readline))
    assert lines == ["MESSAGE\n", "before\n", "after\n"]
