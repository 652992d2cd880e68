"""What other programs write into the read model's buckets, on a real server: it is set right again.

No service is restarted for it, and nothing else has to happen.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from aggregator.decide import SERVICE as AGGREGATOR
from bus.harness import connected, lines_of, outcome, read_all, send, serving, until
from nodepool.contract.commands import SetQuota
from nodepool.contract.log import Entry
from nodepool.host.runtime import Runtime
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.objects.stored_objects import LOG, VERSION_HEADER
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt, ServerRefusal
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE

BUCKET = "KV_quotas"
SUBJECT = f"$KV.quotas.acme.{ZONE}.{H100}"
ORGS = ("acme", "bmce", "cmce")
FAR = 1 << 40
"""A position far beyond the log's end."""
INSPECT_S = 0.3


@pytest.fixture(autouse=True)
def _inspected_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the aggregator look for what others wrote more often than every three seconds."""
    monkeypatch.setattr("nodepool.nats.objects.inspection.INSPECT_S", INSPECT_S)


@dataclass(frozen=True)
class Quotas:
    """A bus on which quotas are set and shown."""

    connection: Connection
    aggregator: Runtime[Any, Any, Any]
    log: Path

    async def entries(self) -> dict[str, Entry]:
        """The last write of every object, by subject; tombstones left out."""
        written = await read_all(self.connection, BUCKET)
        return {entry.subject: entry for entry in written if "KV-Operation" not in entry.headers}

    def wanted(self) -> dict[str, object]:
        """Every object that there should be, by subject."""
        projection, state = self.aggregator.service.projection, self.aggregator.replica.state
        assert projection is not None
        documents: dict[str, object] = {}
        for key in projection.keys(state, "quotas"):
            item = projection.get(state, "quotas", key)
            assert item is not None
            subject = f"$KV.quotas.{key.replace('/', '.')}"
            documents[subject] = json.loads(to_json(projection.render(item)))
        return documents

    async def are_right(self) -> bool:
        """Whether just the objects are stored that there should be, in content and headers."""
        try:
            entries = await self.entries()
        except (InDoubt, ServerRefusal):
            return False
        try:
            documents = {name: json.loads(entry.content) for name, entry in entries.items()}
        except ValueError:
            return False
        lasts = all("Nats-TTL" not in entry.headers for entry in entries.values())
        versions = {name: entry.headers.get(VERSION_HEADER) for name, entry in entries.items()}
        return lasts and documents == self.wanted() and set(versions.values()) == self._versions()

    def _versions(self) -> set[str]:
        return {
            str(item.version) for item in self.aggregator.replica.state.read_model.quotas.values()
        }

    def reports(self) -> list[str]:
        """What the aggregator has logged about objects that it has set right."""
        self.aggregator.telemetry.log.info("read")  # Whatever is buffered is older.
        lines = lines_of(self.log)
        return [str(line["cause"]) for line in lines if line["event"] == "read model repaired"]


@asynccontextmanager
async def quotas(server: NatsServer, tmp_path: Path) -> AsyncIterator[Quotas]:
    """Three quotas, set and shown."""
    log = tmp_path / "aggregator.log"
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "quota.log"),
        serving(AGGREGATOR, server, log) as aggregator,
    ):
        for number, org in enumerate(ORGS):
            command = SetQuota(org=org, zone=ZONE, instance_type=H100, limit=number + 1)
            await send(connection, command, f"c{number}")
            await outcome(connection, f"c{number}")
        shown = Quotas(connection, aggregator, log)
        await until(lambda: len(shown.wanted()) == len(ORGS))
        await until(shown.are_right)
        yield shown


Tampering = Callable[[Quotas], Awaitable[object]]


async def write(shown: Quotas, content: bytes, subject: str = SUBJECT, **other: str) -> None:
    """Writes what is to pass for an object of the aggregator; `other` replaces its headers."""
    headers = await headers_of(shown)
    await api.publish(shown.connection, subject, content, headers={**headers, **other})


async def headers_of(shown: Quotas) -> Mapping[str, str]:
    entry = (await shown.entries())[SUBJECT]
    own = {name: text for name, text in entry.headers.items() if name.startswith("Nodepool-")}
    assert {VERSION_HEADER, LOG} <= own.keys()
    return own


async def other_content(shown: Quotas) -> None:
    await write(shown, b'{"limit": 1000}')


async def no_json(shown: Quotas) -> None:
    await write(shown, b"\xff[" * 10_000)


async def beyond_the_end(shown: Quotas) -> None:
    await write(shown, b'{"limit": 1000}', **{VERSION_HEADER: str(FAR)})


async def endless_version(shown: Quotas) -> None:
    await write(shown, b'{"limit": 1000}', **{VERSION_HEADER: "9" * 5_000})


async def bare(shown: Quotas) -> None:
    await api.publish(shown.connection, SUBJECT, b"whatever")


async def of_another_log(shown: Quotas) -> None:
    await write(shown, b'{"limit": 1000}', **{LOG: "other", VERSION_HEADER: str(FAR)})


async def deleted(shown: Quotas) -> None:
    await api.publish(shown.connection, SUBJECT, b"", headers={"KV-Operation": "DEL"})


async def deleted_beyond_the_end(shown: Quotas) -> None:
    await write(shown, b"", **{"KV-Operation": "DEL", VERSION_HEADER: str(FAR)})


async def deleted_as_by_the_aggregator(shown: Quotas) -> None:
    last = await api.last_position(shown.connection, STREAM)
    await write(shown, b"", **{"KV-Operation": "DEL", VERSION_HEADER: str(last)})


async def purged(shown: Quotas) -> None:
    body = {"filter": SUBJECT}
    await api.request(shown.connection, f"$JS.API.STREAM.PURGE.{BUCKET}", body)


async def all_purged(shown: Quotas) -> None:
    await api.request(shown.connection, f"$JS.API.STREAM.PURGE.{BUCKET}", {})


async def rolled_up(shown: Quotas) -> None:
    await write(shown, b'{"limit": 1000}', **{"Nats-Rollup": "all"})


async def will_expire(shown: Quotas) -> None:
    content = (await shown.entries())[SUBJECT].content
    await write(shown, content, **{"Nats-TTL": "1s"})


async def object_of_nothing(shown: Quotas) -> None:
    await write(shown, b'{"limit": 1000}', f"$KV.quotas.evil.{ZONE}.{H100}")


async def objects_of_no_key(shown: Quotas) -> None:
    for key in ("evil", "a/b.c.d", "acme/US-EAST-04A/x", "a=b.c"):
        await write(shown, b"{}", f"$KV.quotas.{key}")


async def object_of_an_older_state(shown: Quotas) -> None:
    before = (await shown.entries())[SUBJECT]
    command = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=50)
    await send(shown.connection, command, "c9")
    await outcome(shown.connection, "c9")
    await until(lambda: shown.aggregator.replica.state.read_model.quotas[KEY].limit == 50)
    await until(shown.are_right)
    await write(shown, before.content, **{VERSION_HEADER: before.headers[VERSION_HEADER]})


async def bucket_deleted(shown: Quotas) -> None:
    await api.request(shown.connection, f"$JS.API.STREAM.DELETE.{BUCKET}")


async def every_bucket_deleted(shown: Quotas) -> None:
    for bucket in AGGREGATOR_BUCKETS:
        await api.request(shown.connection, f"$JS.API.STREAM.DELETE.KV_{bucket}")


assert AGGREGATOR.projection is not None
AGGREGATOR_BUCKETS = AGGREGATOR.projection.buckets
TAMPERINGS = [
    other_content,
    no_json,
    beyond_the_end,
    endless_version,
    bare,
    of_another_log,
    deleted,
    deleted_beyond_the_end,
    deleted_as_by_the_aggregator,
    purged,
    all_purged,
    rolled_up,
    will_expire,
    object_of_nothing,
    objects_of_no_key,
    object_of_an_older_state,
    bucket_deleted,
    every_bucket_deleted,
]


@pytest.mark.parametrize("tamper", TAMPERINGS)
async def test_what_others_have_done_to_the_read_model_is_set_right_and_reported(
    server: NatsServer, tmp_path: Path, tamper: Tampering
) -> None:
    async with quotas(server, tmp_path) as shown:
        # given objects that are shown as they are
        assert shown.reports() == []

        # when another program with the right to write there changes or removes some
        await tamper(shown)

        # then that is noticed, and the objects are soon as they were
        await until(lambda: bool(shown.reports()))
        await until(shown.are_right)

        # and changes of the state still reach them
        command = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=77)
        await send(shown.connection, command, "last")
        await outcome(shown.connection, "last")
        await until(lambda: shown.aggregator.replica.state.read_model.quotas[KEY].limit == 77)
        await until(shown.are_right)


KEY = f"acme/{ZONE}/{H100}"


async def test_an_aggregator_that_starts_finds_what_was_changed_while_none_ran(
    server: NatsServer, tmp_path: Path
) -> None:
    # given objects, one of which has another content and the right headers since none runs
    async with quotas(server, tmp_path) as shown:
        headers = await headers_of(shown)
    async with connected(server.url) as connection:
        await api.publish(connection, SUBJECT, b'{"limit": 1000}', headers=headers)

        # when an aggregator starts
        log = tmp_path / "again.log"
        async with serving(AGGREGATOR, server, log) as aggregator:
            # then the object is as it was
            again = Quotas(connection, aggregator, log)
            await until(again.are_right)


GONE = f"$KV.quotas.gone.{ZONE}.{H100}"
"""The subject of an object that there never was."""


async def mark_for_good(connection: Connection) -> None:
    """Mark an object as deleted as other clients do: the server never forgets such a mark."""
    await api.publish(connection, GONE, b"", headers={"KV-Operation": "DEL"})


async def is_forgotten_in_time(connection: Connection) -> bool:
    """Return whether the server forgets the mark of the deletion in an hour."""
    entry = await api.last_message(connection, BUCKET, GONE)
    return entry is not None and entry.headers.get("Nats-TTL") == "3600s"


async def test_an_aggregator_that_starts_replaces_marks_that_would_stay_for_good(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a mark that was left while no aggregator ran
    async with quotas(server, tmp_path):
        pass
    async with connected(server.url) as connection:
        await mark_for_good(connection)

        # when an aggregator starts
        async with serving(AGGREGATOR, server, tmp_path / "again.log"):
            # then the mark is one that the server forgets
            await until(lambda: is_forgotten_in_time(connection))


async def test_objects_of_a_log_that_is_gone_go_with_it(server: NatsServer, tmp_path: Path) -> None:
    async with quotas(server, tmp_path) as shown:
        # given objects of a log
        before = shown.aggregator.replica
        assert len(await shown.entries()) == len(ORGS)

        # when the log is deleted, and its buckets are not
        await api.request(shown.connection, f"$JS.API.STREAM.DELETE.{STREAM}")
        await until(lambda: shown.aggregator.replica is not before)

        # then the objects go, for there is nothing in the new log that they could be of
        await until(lambda: has_none(shown))
        assert "objects of another log" in shown.reports()


async def has_none(shown: Quotas) -> bool:
    return not await shown.entries()
