"""A log whose head is cut, on a real server: by a limit that an operator has set on its stream."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from bus.harness import (
    connected,
    fill,
    launched,
    limit,
    outcome,
    restart,
    send,
    serving,
    until,
)
from bus.test_doctor import doctor
from bus.test_process_life import readiness, says
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import BUFFER_MAX, Reader
from nodepool.nats.log.streams import STREAM, provision, stream_info, streams
from nodepool.nats.log.verification import verify_log
from nodepool.nats.objects.snapshots import stored_position
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import HeadMissing
from nodepool.nats.wire.library import Msg
from quota.decide import SERVICE as QUOTA
from testbed.ports import free_port

EVENT = "np.evt.fleet.acme.prod.p.Noted"
"""A subject that quota does not hear."""


async def cut(connection: Connection, kept: int) -> int:
    """Cuts the head of the log but for so many messages; the first position that is left."""
    config = {**streams()[STREAM], "discard": "old", "max_msgs": kept}
    await api.request(connection, f"$JS.API.STREAM.UPDATE.{STREAM}", config)
    info = await stream_info(connection, STREAM)
    assert info is not None
    return info.first


async def send_several(connection: Connection, count: int) -> None:
    """Sends commands, and returns once each has its outcome."""
    for number in range(count):
        await send(connection, limit(number), f"c{number}")
        await outcome(connection, f"c{number}")


async def test_a_service_without_a_snapshot_does_not_begin_in_the_middle_of_the_log(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection:
        # given a service that has processed commands, and has no snapshot
        async with serving(QUOTA, server, tmp_path / "one.log"):
            await send_several(connection, 3)

        # when the head of the log is cut, and a replica starts
        first = await cut(connection, 2)
        async with serving(QUOTA, server, tmp_path / "two.log", wait=False) as runtime:
            text = f"trim gap: the log begins at position {first}, and quota has no snapshot"
            await until(lambda: (runtime.obstacle() or "").startswith(text))

            # then it is not ready, does nothing, and the doctor names the remedy
            assert not runtime.ready.is_set()
            assert runtime.replica.committed == 0
            _, report = await doctor(capsys, server.url)
            status, text = report["beginning of the log"]
            assert status == "problem"
            assert text.startswith(f"it begins at position {first}, without a snapshot of ")
            assert "quota" in text


async def test_a_service_at_work_saves_a_snapshot_when_the_head_of_the_log_is_cut(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        async with serving(QUOTA, server, tmp_path / "one.log") as runtime:
            # given a service at work, long before its first snapshot is due
            await send_several(connection, 3)

            # when others fill the log, and its head is cut
            await fill(connection, [(EVENT, b"{}")] * 50)
            first = await cut(connection, 10)
            info = await stream_info(connection, STREAM)
            assert info is not None
            assert runtime.replica.committed < first - 1

            # then it moves on, saves a snapshot, and stays ready
            await until(partial(reaches, connection, first))
            assert runtime.is_ready()
            state = runtime.replica.safe.state

        # and another replica begins there
        async with serving(QUOTA, server, tmp_path / "two.log") as second:
            assert second.replica.safe.state == state


async def reaches(connection: Connection, first: int) -> bool:
    """Whether the snapshot of quota reaches the beginning of the log."""
    log = await provision(connection)
    return await stored_position(connection, "quota", log) >= first - 1


async def test_a_reader_does_not_pass_over_what_is_cut_before_it_has_read_it(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a reader that is far behind
        log = await provision(connection)
        await fill(connection, [(EVENT, b"{}")] * (2 * BUFFER_MAX))
        verify = partial(verify_log, connection, log, is_whole=True)
        wants = lambda subject: subject == EVENT  # noqa: E731
        reader = Reader(connection, STREAM, [EVENT], wants=wants, verify=verify)
        await reader.open()
        await until(lambda: reader.last > 0)

        # when what it has not read is cut away
        await cut(connection, 100)

        # then it says so, and hands over nothing that lies behind
        positions: list[int] = []
        with pytest.raises(HeadMissing, match="begins at position"):
            await read_into(reader, positions)
        assert max(positions) <= 2 * BUFFER_MAX - 100
        await reader.close()


async def test_a_head_that_is_cut_off_while_the_log_is_verified_makes_it_no_other_log(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url) as connection:
        # given a log that was read to the middle
        log = await provision(connection)
        await fill(connection, [(EVENT, b"{}")] * 50)
        read = await api.leaders_message_at(connection, STREAM, 20)
        assert read is not None

        # when its head is cut off after the server has said where it begins
        request = connection.request

        async def cut_before_a_message(subject: str, content: bytes, timeout: float) -> Msg:  # noqa: ASYNC109
            if ".MSG.GET." in subject:
                monkeypatch.undo()
                await cut(connection, 10)
            return await request(subject, content, timeout)

        monkeypatch.setattr(connection, "request", cut_before_a_message)

        # then the head is what is missing
        with pytest.raises(HeadMissing, match="begins at position 41, and was read to 20"):
            await verify_log(connection, log, read.position, read.time, is_whole=True)


async def read_into(reader: Reader, positions: list[int]) -> None:
    """Reads until the reader ends; notes the position of each message."""
    while True:
        positions += [entry.position for entry in await reader.next(timeout_s=1)]


async def test_a_service_that_was_away_while_the_head_was_cut_does_not_read_on(
    server: NatsServer, tmp_path: Path
) -> None:
    with launched("quota", server, tmp_path, free_port()) as replica:
        async with connected(server.url) as connection:
            # given a replica at work that is frozen
            await says(replica, "ok")
            await send_several(connection, 3)
            os.kill(replica.pid, signal.SIGSTOP)

            # when the log is cut beyond what it has read, and it goes on
            await restart(server)
            await fill(connection, [(EVENT, b"{}")] * 50)
            first = await cut(connection, 10)
            os.kill(replica.pid, signal.SIGCONT)

        # then it does not read on
        text = f"not ready: trim gap: the log begins at position {first}, and quota has no snapshot"
        await until(lambda: readiness(replica).startswith(text))
