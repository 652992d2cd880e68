"""Streams that take no messages, on a real server: sealed, full by a limit, or without subjects."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from aggregator.decide import SERVICE as AGGREGATOR
from bus.harness import connected, limit, outcome, send, serving, until
from bus.test_doctor import doctor
from nodepool.cli.app import run
from nodepool.host.runtime import Runtime
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, stream_info, streams
from nodepool.nats.wire.connection import Connection
from nodepool.service import I, O, S
from quota.decide import SERVICE as QUOTA

BUCKET = "KV_quotas"


async def update(connection: Connection, stream: str, **settings: object) -> None:
    """Changes settings of a stream, as an operator may."""
    config = {**streams()[stream], **settings}
    await api.request(connection, f"$JS.API.STREAM.UPDATE.{stream}", config)


async def says_why(runtime: Runtime[S, I, O], text: str) -> None:
    """Returns once a service is not ready for this reason."""
    await until(lambda: (runtime.obstacle() or "").startswith(text))


async def set_a_limit(connection: Connection, id: str) -> object:
    """The type of the outcome of a command."""
    await send(connection, limit(1), id)
    return (await outcome(connection, id))["type"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_msgs": 1}, "its max_msgs is 1, and it holds "),
        ({"max_bytes": 100}, "its max_bytes is 100, and it holds "),
        (
            {"subjects": ["np.evt.>", "np.commit.>", "np.dead.>"]},
            "its subjects lack np.cmd.",
        ),
    ],
)
async def test_a_service_is_not_ready_while_the_log_takes_no_commands(
    server: NatsServer, tmp_path: Path, settings: Mapping[str, object], text: str
) -> None:
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "one.log") as runtime,
    ):
        # given a service at work
        assert await set_a_limit(connection, "c1") == "CommandAccepted"

        # when an operator changes the log so that it takes no commands
        await update(connection, STREAM, **settings)

        # then the service is not ready, and says why
        await says_why(runtime, f"the log takes no messages: {text}")

        # and when that is undone, then it is ready again
        await update(connection, STREAM)
        await until(runtime.is_ready)
        assert await set_a_limit(connection, "c2") == "CommandAccepted"


async def test_a_sealed_log_is_named_by_services_and_can_be_made_whole_again(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        async with serving(QUOTA, server, tmp_path / "one.log") as runtime:
            # given a service at work
            await set_a_limit(connection, "c1")
            await until(lambda: len(runtime.replica.safe.state.ledgers) == 1)
            state = runtime.replica.safe.state

            # when an operator seals the log
            await update(connection, STREAM, sealed=True)

            # then it is not ready, and no other one is that starts
            text = "the log takes no messages: it is sealed"
            await says_why(runtime, text)
            async with serving(QUOTA, server, tmp_path / "two.log", wait=False) as second:
                await says_why(second, text)

        # and when the remedy of the doctor is tried, then services work on
        _, report = await doctor(capsys, server.url)
        assert report[f"stream {STREAM}"] == (
            "problem",
            "it is sealed: it takes no messages any more, and cannot be unsealed",
        )
        folder = str(tmp_path / "backup")
        for words in (["backup", folder], ["restore", folder, "--force"]):
            assert await asyncio.to_thread(run, ["--url", server.url, *words]) == 0
        async with serving(QUOTA, server, tmp_path / "three.log") as third:
            assert third.replica.safe.state == state
            assert await set_a_limit(connection, "c2") == "CommandAccepted"


async def test_services_work_with_a_sealed_stream_of_snapshots_until_it_is_deleted(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        # given a stream of snapshots that an operator has sealed
        await update(connection, SNAPSHOTS, sealed=True)

        # when a service starts, then it works
        async with serving(QUOTA, server, tmp_path / "one.log", snapshot_after=1) as runtime:
            assert await set_a_limit(connection, "c1") == "CommandAccepted"
            assert runtime.is_ready()
            await until(lambda: "snapshot failed" in (tmp_path / "one.log").read_text())

            # and when the remedy of the doctor is tried, then there is a snapshot
            assert (await remedy(capsys, server, SNAPSHOTS)).startswith("nats stream rm ")
            await api.request(connection, f"$JS.API.STREAM.DELETE.{SNAPSHOTS}")
            await until(lambda: "snapshot saved" in (tmp_path / "one.log").read_text())


@pytest.mark.parametrize("is_at_work", [False, True])
async def test_a_sealed_bucket_of_the_read_model_is_named_and_filled_once_it_is_deleted(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_at_work: bool
) -> None:
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "quota.log"),
    ):
        # given a bucket that is sealed before the writer of the read model starts, or later
        if not is_at_work:
            await update(connection, BUCKET, sealed=True)
        async with serving(AGGREGATOR, server, tmp_path / "one.log") as runtime:
            if is_at_work:
                await update(connection, BUCKET, sealed=True)

            # when an object has to be written into it
            assert await set_a_limit(connection, "c1") == "CommandAccepted"

            # then the writer is not ready, says why, and parks nothing
            await says_why(runtime, f"the read model is not written: {BUCKET}: ")
            assert "object parked" not in (tmp_path / "one.log").read_text()

            # and when the remedy of the doctor is tried, then the bucket is filled
            assert (await remedy(capsys, server, BUCKET)).startswith("nats stream rm ")
            await api.request(connection, f"$JS.API.STREAM.DELETE.{BUCKET}")
            await until(partial(has_objects, connection))
            await until(runtime.is_ready)


async def remedy(capsys: pytest.CaptureFixture[str], server: NatsServer, stream: str) -> str:
    """What the doctor advises for a stream."""
    capsys.readouterr()
    await asyncio.to_thread(run, ["--url", server.url, "doctor", "-o", "json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    return next(str(each["fix"]) for each in checks if each["check"] == f"stream {stream}")


async def has_objects(connection: Connection) -> bool:
    """Whether the bucket holds something."""
    info = await stream_info(connection, BUCKET)
    return info is not None and info.messages > 0
