"""A service as a process through its life: what it logs, and what its readiness says."""

import asyncio
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from bus.harness import (
    PATIENCE_S,
    ROUNDS,
    ReplicaProcess,
    connected,
    launched,
    limit,
    outcome,
    restart,
    send,
    serving,
    until,
)
from bus.test_runtime import ALARM, fired
from nodepool.host.settings import FIELDS
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.api import REPLY_TIMEOUT_S
from nodepool.nats.log.streams import STREAM, streams
from nodepool.nats.wire.connection import SILENCE_S, Connection
from nodepool.nats.wire.errors import ServerRefusal
from quota.decide import SERVICE as QUOTA
from support.loopback import listening
from testbed.pages import PageFailure
from testbed.ports import free_port

HOST = "127.0.0.1"
FULL = Path("/dev/full")
MARGIN_S = 4.0
"""How much later something may be on a machine that has much else to do."""


def readiness(replica: ReplicaProcess) -> str:
    """The line of its readiness; empty where it serves no pages yet."""
    try:
        return replica.page("/readyz").strip()
    except PageFailure as failure:
        return failure.text.strip()
    except OSError:
        return ""


async def says(replica: ReplicaProcess, line: str) -> None:
    """Returns once the readiness is this line."""

    async def holds() -> bool:
        return await asyncio.to_thread(readiness, replica) == line

    await until(holds)


def events(replica: ReplicaProcess) -> list[object]:
    """The names of its log lines."""
    return [line["event"] for line in replica.lines()]


async def line_of(replica: ReplicaProcess, event: str) -> dict[str, object]:
    """Returns the last line with this name once there is such a line.

    A page may say what has happened before the line about that is written.
    """
    found: list[dict[str, object]] = []

    def written() -> bool:
        found[:] = [line for line in replica.lines() if line["event"] == event]
        return bool(found)

    await until(written)
    return found[-1]


def in_order(names: Sequence[object], expected: Sequence[str]) -> bool:
    """Whether all expected names are there in their order, with others between."""
    left = iter(names)
    return all(name in left for name in expected)


async def test_a_service_says_what_it_waits_for_and_each_change_of_its_life(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a service that starts without a server, whose address holds a password
    await asyncio.to_thread(server.kill)
    address = server.url.removeprefix("nats://")
    url = f"nats://user:secret@{address}"
    refused = f"cannot reach {server.url}: Connection refused"
    with launched("quota", server, tmp_path, free_port(), url=url) as replica:
        # when there is none, then it says so at once, and not twenty times a second
        await says(replica, f"not ready: {refused}")
        await until(lambda: len(replica.lines()) >= 4)
        assert events(replica)[:4] == ["started", *["cannot connect"] * 3]
        started, first, second, *_ = replica.lines()
        assert (started["url"], started["version"]) == (server.url, "0.1.0")
        assert first["cause"] == refused
        assert 1 <= int(str(second["left_out"])) < 20

        # when there is one, then it says how far it has come, and which part it takes
        await asyncio.to_thread(server.start)
        await says(replica, "ok")
        assert (await line_of(replica, "connected"))["server"] == server.url
        assert (await line_of(replica, "caught up")).keys() >= {"committed", "read_to", "seconds"}
        async with connected(server.url) as connection:
            await send(connection, limit(1), "c1")
            await outcome(connection, "c1")
        await until(lambda: "leading" in events(replica))

        # when it is gone again, then readiness and a line say so
        await asyncio.to_thread(server.kill)
        await says(replica, f"not ready: {refused}")
        lost = await line_of(replica, "lost connection")
        assert str(lost["cause"]).startswith(f"lost {server.url}: ")
        await asyncio.to_thread(server.start)
        await says(replica, "ok")
        assert (await line_of(replica, "reconnected")).keys() >= {"server", "seconds"}

        # when it is told to stop, then it says so, and stops
        os.kill(replica.pid, signal.SIGTERM)
        assert await asyncio.to_thread(replica.process.wait, PATIENCE_S) == 0
        life = ("started", "cannot connect", "connected", "caught up", "leading")
        assert in_order(events(replica), (*life, "lost connection", "reconnected", "stopping"))
        assert "secret" not in replica.log.read_text()
        assert replica.errors() == ""


async def test_a_follower_says_that_it_follows(server: NatsServer, tmp_path: Path) -> None:
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "one.log"),
        serving(QUOTA, server, tmp_path / "two.log"),
    ):
        # given two replicas
        # when one of them has processed a command
        await send(connection, limit(1), "c1")
        await outcome(connection, "c1")

        # then one says that it leads, and the other that it follows, each once
        def roles() -> list[str]:
            text = "".join((tmp_path / f"{name}.log").read_text() for name in ("one", "two"))
            return sorted(re.findall('"event":"(leading|following)"', text))

        await until(lambda: roles() == ["following", "leading"])


async def test_a_frozen_server_is_noticed_soon_and_work_goes_on_with_it(
    server: NatsServer, tmp_path: Path
) -> None:
    with launched("quota", server, tmp_path, free_port()) as replica:
        # given a service at work
        await says(replica, "ok")
        clock, pid = asyncio.get_running_loop().time, server.pid
        assert pid is not None
        took: list[float] = []
        for number in range(ROUNDS):
            # when its server is frozen
            os.kill(pid, signal.SIGSTOP)
            began = clock()

            # then it soon says so
            await says(replica, f"not ready: cannot reach {server.url}: no reply in time")
            took.append(clock() - began)
            lost = await line_of(replica, "lost connection")
            assert lost["cause"] == f"lost {server.url}: the server does not reply"

            # and when the server goes on, so does the service
            os.kill(pid, signal.SIGCONT)
            async with connected(server.url) as connection:
                await send(connection, limit(number), f"c{number}")
                await outcome(connection, f"c{number}")
            await says(replica, "ok")
            if took[-1] <= SILENCE_S + 2 + MARGIN_S:
                break
        assert min(took) <= SILENCE_S + 2 + MARGIN_S


async def test_a_service_whose_client_has_closed_for_good_begins_a_new_session(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "one.log") as runtime,
    ):
        # given a service at work
        first = runtime.replica
        assert runtime._session is not None

        # when its client closes for a reason of its own
        await runtime._session.connection.close()

        # then it works on, with another
        await send(connection, limit(1), "c1")
        assert (await outcome(connection, "c1"))["type"] == "CommandAccepted"
        await until(runtime.is_ready)
        assert runtime.replica is not first


async def stored_bytes(connection: Connection) -> int:
    """The size of the log."""
    state = (await api.request(connection, f"$JS.API.STREAM.INFO.{STREAM}"))["state"]
    assert isinstance(state, dict)
    return int(state["bytes"])


async def bound(connection: Connection, size: int) -> None:
    """Lets the log grow to so many bytes; without bounds where that is -1."""
    config = {**streams()[STREAM], "max_bytes": size}
    await api.request(connection, f"$JS.API.STREAM.UPDATE.{STREAM}", config)


async def test_a_service_whose_commits_are_refused_says_so_until_they_are_not(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "one.log") as runtime,
    ):
        # given a service, and a log that takes nothing more
        await send(connection, limit(1), "c1")
        await outcome(connection, "c1")
        size = await stored_bytes(connection)
        await bound(connection, size)

        # when there is room for a command, and not for what comes of it
        for more in range(100, 2_000, 100):
            await bound(connection, size + more)
            with suppress(ServerRefusal):
                await send(connection, limit(2), "c2")
                break

        # then it is not ready, and says why
        def refused() -> bool:
            obstacle = runtime.obstacle() or ""
            return obstacle.startswith("a commit is refused: the server refuses: maximum bytes")

        await until(refused)

        # and once there is room it works on
        await bound(connection, -1)
        assert (await outcome(connection, "c2"))["type"] == "CommandAccepted"
        await until(runtime.is_ready)


async def test_a_service_whose_wake_is_refused_says_so_until_it_is_not(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(ALARM, server, tmp_path / "one.log") as runtime,
    ):
        for number, seconds in enumerate((3, 15, 45)):
            # given a service that is to be woken soon, with nothing left to store until then
            await send(connection, limit(seconds * 1_000), f"c{number}")
            await outcome(connection, f"c{number}")

            # when the log takes nothing more before that (later, should it come too late)
            await bound(connection, await stored_bytes(connection))
            if await fired(connection) == number:
                break
            await bound(connection, -1)
            await until(lambda: runtime.replica.due() is None)

        # then it is not ready once it is due, and says why
        def refused() -> bool:
            obstacle = runtime.obstacle() or ""
            return obstacle.startswith("a wake is not stored: the server refuses: maximum byte")

        await until(refused, 2 * PATIENCE_S)

        # and once there is room it is woken
        await bound(connection, -1)
        await until(lambda: runtime.replica.due() is None)
        await until(runtime.is_ready)


async def test_a_service_that_waits_for_a_reply_of_the_server_stops_when_it_is_told_to(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a server that takes connections and replies to no request
    greeted = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576,"headers":true}\r\n')
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            if line.startswith((b"PUB", b"HPUB")):
                greeted.set()

    async with listening(greet) as port:
        url, clock = f"nats://{HOST}:{port}", asyncio.get_running_loop().time
        took: list[float] = []
        for _ in range(ROUNDS):
            greeted.clear()
            with launched("quota", server, tmp_path, free_port(), url=url) as replica:
                # when a service that has sent one is told to stop
                async with asyncio.timeout(PATIENCE_S):
                    await greeted.wait()
                await says(replica, "not ready: reading the newest snapshot")
                os.kill(replica.pid, signal.SIGTERM)
                told = clock()

                # then it does not wait for the reply
                assert await asyncio.to_thread(replica.process.wait, PATIENCE_S) == 0
                took.append(clock() - told)
            if took[-1] < REPLY_TIMEOUT_S - 1:
                break
        assert min(took) < REPLY_TIMEOUT_S - 1


@pytest.mark.skipif(not FULL.exists(), reason="needs Linux's always full device")
async def test_a_service_whose_output_is_on_a_full_disk_works_and_stops_as_any_other(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a service whose log lines go to standard output, which takes none
    with launched("quota", server, tmp_path, free_port(), output=FULL) as replica:
        await says(replica, "ok")

        # when it processes a command that it logs, loses its server, and has it again
        async with connected(server.url) as connection:
            await send(connection, limit(1), "c1")
            assert (await outcome(connection, "c1"))["type"] == "CommandAccepted"
        await restart(server)
        await says(replica, "ok")

        # then it stops in good order when it is told to
        os.kill(replica.pid, signal.SIGTERM)
        assert await asyncio.to_thread(replica.process.wait, PATIENCE_S) == 0
        assert replica.errors() == ""


async def test_the_settings_in_the_log_are_all_of_them(server: NatsServer, tmp_path: Path) -> None:
    async with serving(QUOTA, server, tmp_path / "one.log"):
        text = (tmp_path / "one.log").read_text().splitlines()[0]
    assert all(f'"{name}":' in text for name in FIELDS)
