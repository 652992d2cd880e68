"""Streams that are lost while services run, on a real server: they are made and filled again."""

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from bus.harness import (
    connected,
    launched,
    limit,
    lines_of,
    outcome,
    outcomes,
    restart,
    send,
    serving,
    until,
)
from nodepool.host.runtime import Runtime
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import IDENTITY, STREAM, provision, stream_info, streams
from nodepool.nats.log.verification import verify_log
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import LogChanged
from quota import Hears, Says
from quota.decide import SERVICE as QUOTA
from quota.state import State
from testbed.ports import free_port

LOG_FOLDER = f"jetstream/$G/streams/{STREAM}"
"""Where the server keeps the log, in its folder."""


async def delete(connection: Connection, stream: str) -> None:
    await api.request(connection, f"$JS.API.STREAM.DELETE.{stream}")


# --- the identity of a log ----------------------------------------------------------------------


async def test_a_log_keeps_its_identity_for_as_long_as_it_is_there(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a log
        log = await provision(connection)

        # when it is provisioned again, by a release that knows of no identity, and by this one
        await api.request(connection, f"$JS.API.STREAM.UPDATE.{STREAM}", streams()[STREAM])
        again = [await provision(connection) for _ in range(2)]

        # then it is the same log, which its metadata names
        info = await stream_info(connection, STREAM)
        assert again == [log, log]
        assert info is not None
        assert info.metadata[IDENTITY] == log
        await verify_log(connection, log, 0)


async def test_a_log_that_is_made_anew_is_another_one_for_all_who_make_it(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a log that is deleted
        log = await provision(connection)
        await delete(connection, STREAM)
        with pytest.raises(LogChanged, match=f"the log {log} is gone"):
            await verify_log(connection, log, 0)

        # when several programs make it anew at once
        made = await asyncio.gather(*(provision(connection) for _ in range(5)))

        # then all of them have the same log, and it is not the one before
        assert len(set(made)) == 1
        assert made[0] != log
        with pytest.raises(LogChanged, match=f"is {made[0]}, and no longer {log}"):
            await verify_log(connection, log, 0)


async def test_what_others_have_noted_on_a_log_stays(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a log on which an operator has noted something, and which has a name of its own
        noted = {"owner": "platform", IDENTITY: "ours"}
        config = {**streams()[STREAM], "metadata": noted}
        await api.request(connection, f"$JS.API.STREAM.UPDATE.{STREAM}", config)

        # when it is provisioned
        log = await provision(connection)

        # then both stay
        info = await stream_info(connection, STREAM)
        assert log == "ours"
        assert info is not None
        assert noted.items() <= info.metadata.items()


# --- a log that is gone -------------------------------------------------------------------------

Loss = Callable[[Connection, NatsServer, Path], Awaitable[object]]


async def delete_log(connection: Connection, _server: NatsServer, _data: Path) -> None:
    await delete(connection, STREAM)


async def replace_log(connection: Connection, _server: NatsServer, _data: Path) -> None:
    await delete(connection, STREAM)
    await provision(connection)


async def wipe(_connection: Connection, server: NatsServer, data: Path) -> None:
    await asyncio.to_thread(server.kill)
    shutil.rmtree(data / "jetstream")
    await restart(server)


async def logged(log: Path, event: str) -> dict[str, object]:
    """The first line of a service's log about this event, as soon as there is one."""
    lines: list[dict[str, object]] = []

    def is_there() -> bool:
        lines[:] = lines_of(log)
        return event in [line["event"] for line in lines]

    await until(is_there)
    return next(line for line in lines if line["event"] == event)


@pytest.mark.parametrize("lose", [delete_log, replace_log, wipe])
async def test_services_go_on_with_a_new_log_when_theirs_is_gone_and_report_it(
    server: NatsServer, tmp_path: Path, lose: Loss
) -> None:
    log = tmp_path / "quota.log"
    async with connected(server.url) as connection, serving(QUOTA, server, log) as runtime:
        # given a service that has processed commands
        for number in range(3):
            await send(connection, limit(number), f"c{number}")
            await outcome(connection, f"c{number}")
        before = runtime.replica

        # when its log is gone
        await lose(connection, server, tmp_path / "nats")

        # then it begins anew, with the state before the first message
        await until(lambda: runtime.replica is not before and runtime.ready.is_set())
        assert runtime.replica.safe.state == QUOTA.initial

        # and does what it is asked to, though it had the same command before
        await send(connection, limit(7), "c1")
        assert (await outcome(connection, "c1"))["type"] == "CommandAccepted"
        assert (await logged(log, "log changed"))["level"] == "error"


async def test_services_begin_anew_when_their_log_has_gone_back(
    server: NatsServer, tmp_path: Path
) -> None:
    log, copy = tmp_path / "quota.log", tmp_path / "copy"
    async with connected(server.url) as connection, serving(QUOTA, server, log) as runtime:
        # given a backup of the log, and a service that has gone on since
        await send(connection, limit(1), "c1")
        await outcome(connection, "c1")
        await asyncio.to_thread(server.stop)
        shutil.copytree(tmp_path / "nats" / "jetstream", copy)
        await restart(server)
        for number in range(2, 9):
            await send(connection, limit(number), f"c{number}")
            await outcome(connection, f"c{number}")

        # when the backup is put in the place of the log
        before = runtime.replica
        await asyncio.to_thread(server.stop)
        shutil.rmtree(tmp_path / "nats" / "jetstream")
        copy.rename(tmp_path / "nats" / "jetstream")
        await restart(server)

        # then it begins anew with what the backup holds, and goes on
        await until(lambda: runtime.replica is not before and runtime.ready.is_set())
        await send(connection, limit(7), "c8")
        assert (await outcome(connection, "c8"))["type"] == "CommandAccepted"
        assert "ends at 4, and was read to" in str((await logged(log, "log changed"))["cause"])


def keep(folder: Path, copy: Path) -> None:
    """Copies the log of a server that is stopped."""
    shutil.copytree(folder / LOG_FOLDER, copy)


def put_back(folder: Path, copy: Path) -> None:
    """Puts a copy in the place of the log, and of nothing else."""
    shutil.rmtree(folder / LOG_FOLDER)
    shutil.copytree(copy, folder / LOG_FOLDER)


def limits(runtime: Runtime[State, Hears, Says]) -> list[int | None]:
    """The limits that a replica of quota knows."""
    return [ledger.limit for ledger in runtime.replica.safe.state.ledgers.values()]


async def set_limits(connection: Connection, numbers: Sequence[int]) -> None:
    for number in numbers:
        await send(connection, limit(number), f"c{number}")
        await outcome(connection, f"c{number}")


async def test_a_frozen_replica_notices_that_its_log_has_gone_back_and_was_brought_further(
    server: NatsServer, tmp_path: Path
) -> None:
    data, copy = tmp_path / "nats", tmp_path / "copy"
    with launched("quota", server, tmp_path, free_port()) as replica:
        # given a copy of the log, and a replica that has gone on since and is frozen
        async with connected(server.url) as connection:
            await set_limits(connection, [1])
            await asyncio.to_thread(server.stop)
            keep(data, copy)
            await restart(server)
            await set_limits(connection, [2, 3])
            os.kill(replica.pid, signal.SIGSTOP)

            # when the copy is put in the place of the log, and others bring that further
            await asyncio.to_thread(server.stop)
            put_back(data, copy)
            await restart(server)
            async with serving(QUOTA, server, tmp_path / "two.log"):
                await set_limits(connection, range(4, 9))

            # and the replica goes on, alone
            os.kill(replica.pid, signal.SIGCONT)

            # then it does not read on, but begins with what the log holds now
            cause = str((await logged(replica.log, "log changed"))["cause"])
            assert "was set back and has grown since" in cause
            await set_limits(connection, [9])
            with_all = {f"c{number}": ["CommandAccepted"] for number in (1, *range(4, 10))}
            assert await outcomes(connection) == with_all
            async with serving(QUOTA, server, tmp_path / "three.log") as other:
                assert limits(other) == [9]


async def test_a_snapshot_of_a_log_that_has_gone_back_and_has_grown_since_is_not_used(
    server: NatsServer, tmp_path: Path
) -> None:
    data, copy = tmp_path / "nats", tmp_path / "copy"
    async with connected(server.url) as connection:
        # given a copy of a log, and a snapshot of what came after it
        async with serving(QUOTA, server, tmp_path / "one.log", snapshot_after=5):
            await set_limits(connection, [1])
        await asyncio.to_thread(server.stop)
        keep(data, copy)
        await restart(server)
        async with serving(QUOTA, server, tmp_path / "two.log", snapshot_after=5):
            await set_limits(connection, [2, 3])
            await until(lambda: "snapshot saved" in (tmp_path / "two.log").read_text())

        # when the copy is put in the place of the log, which grows in the same way
        await asyncio.to_thread(server.stop)
        put_back(data, copy)
        await restart(server)
        async with serving(QUOTA, server, tmp_path / "three.log", snapshots="ignore"):
            await set_limits(connection, [4, 5])

        # then another service does not begin at the snapshot
        async with serving(QUOTA, server, tmp_path / "four.log") as runtime:
            assert limits(runtime) == [5]
        cause = str((await logged(tmp_path / "four.log", "snapshot not used"))["cause"])
        assert "the log was set back and has grown since" in cause
