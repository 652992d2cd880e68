"""`nodepool backup` and `restore` on real servers: whole or not there, and services go on."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aggregator.decide import SERVICE as AGGREGATOR
from bus.harness import (
    PATIENCE_S,
    ROUNDS,
    connected,
    fill,
    limit,
    outcome,
    read_all,
    send,
    serving,
    until,
)
from bus.stalling import stalling
from bus.tls import HOST, running
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.client.backup import check_backup
from nodepool.contract.log import Entry
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, provision, stream_info, streams
from nodepool.nats.wire.connection import Connection
from quota.decide import SERVICE as QUOTA
from testbed.ports import free_port

COMMANDS = 300
READERS = 300
FILLED = 4_000
HALF = 1 << 20
"""Half of the bytes of a log with so many messages."""


async def nodepool(url: str, *words: str) -> int:
    return await asyncio.to_thread(run, ["--url", url, *words])


async def replayed(connection: Connection, log: list[Entry]) -> list[bytes]:
    """The state of quota after this log."""
    replica = Replica(QUOTA, log=await provision(connection))
    for entry in log:
        if QUOTA.wants(entry.subject):
            replica.read(entry)
    return list(dump(replica.safe))


async def test_a_backup_under_load_is_restored_on_another_server_and_services_go_on(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "backup"

    # given a service at work, under load while a backup is made
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "quota.log"),
    ):
        for number in range(COMMANDS):
            await send(connection, limit(number), f"c{number}")
            if number == COMMANDS // 2:
                backing_up = asyncio.create_task(nodepool(server.url, "backup", str(folder)))
        assert await backing_up == 0
        await outcome(connection, f"c{COMMANDS - 1}")
        whole = await read_all(connection)
    assert capsys.readouterr().out.startswith(f"backup/{folder} created: ")

    # when it is restored on a new server
    port = free_port()
    url = f"nats://{HOST}:{port}"
    with running(tmp_path, port, ""):
        assert await nodepool(url, "restore", str(folder)) == 0
        assert "log restored up to position " in capsys.readouterr().out
        async with connected(url) as connection:
            log = await read_all(connection)

            # then it is the log as it was, up to a position
            last = json.loads((folder / "manifest.json").read_text())["last"]
            assert COMMANDS // 2 <= last <= len(whole)
            assert [entry[:4] for entry in log] == [entry[:4] for entry in whole[:last]]

            # and the service goes on: what was done is not done again, what is new is
            other = NatsServer(tmp_path / "unused", port, Path("unused"))
            async with serving(QUOTA, other, tmp_path / "next.log") as runtime:
                await send(connection, limit(0), "c0")
                await send(connection, limit(7), "new")
                position = (await outcome(connection, "new"))["causeposition"]
                assert isinstance(position, int)
                await until(lambda: runtime.replica.committed >= position)
                live = list(dump(runtime.replica.safe))
            after = await read_all(connection)
            events = [e for e in after[last:] if e.subject.endswith(".QuotaSet")]
            ids = {json.loads(entry.content)["correlationid"] for entry in events}
            assert "c0" not in ids
            assert "new" in ids
            assert await replayed(connection, after) == live

        # and it is not restored over what is there, unless that is insisted on
        assert await nodepool(url, "restore", str(folder)) == 1
        assert "there is a log already" in capsys.readouterr().err
        assert await nodepool(url, "restore", "--force", str(folder)) == 0


async def test_a_log_that_services_read_is_not_restored_over(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "backup")
    async with serving(QUOTA, server, tmp_path / "quota.log"):
        assert await nodepool(server.url, "backup", folder) == 0

        async def refused() -> bool:
            code = await nodepool(server.url, "restore", "--force", folder)
            return (code, capsys.readouterr().err) == (
                1,
                "error: stop the services first; at work are quota\n",
            )

        await until(refused)


async def test_a_backup_that_is_not_whole_is_refused(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "backup"
    content, manifest = folder / "log.snapshot", folder / "manifest.json"

    async with connected(server.url) as connection:
        await fill(connection, [("np.cmd.a._._.X", b"{}")])
    assert await nodepool(server.url, "backup", str(folder)) == 0
    assert await nodepool(server.url, "backup", str(folder)) == 1
    assert "exists already" in capsys.readouterr().err
    whole, described = content.read_bytes(), manifest.read_text()

    async def refusal() -> str:
        assert await nodepool(server.url, "restore", "--force", str(folder)) == 1
        return capsys.readouterr().err.removeprefix("error: ").rstrip("\n")

    # given what is cut, changed, without its description, or gone
    content.write_bytes(whole[:-1])
    assert await refusal() == (
        f"{content} has {len(whole) - 1} bytes instead of {len(whole)}; restore another backup"
    )
    content.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert await refusal() == f"{content} is damaged: its checksum differs; restore another backup"
    manifest.write_text(described[:40])
    assert await refusal() == f"{manifest} is damaged; restore another backup"
    manifest.unlink()
    assert await refusal() == f"{folder} is no backup: No such file or directory: {manifest}"


async def test_what_the_server_does_not_take_is_not_made_room_for(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, port = tmp_path / "backup", free_port()
    url = f"nats://all:x@{HOST}:{port}"
    small = (
        f"accounts {{ a: {{ jetstream: {{ max_mem: 1MB, max_file: {HALF} }},"
        " users: [{ user: all, password: x }] } }"
    )

    # given a backup, and a log on a server that has less room than it takes
    async with connected(server.url) as connection:
        await fill_with_noise(connection)
    assert await nodepool(server.url, "backup", str(folder)) == 0
    with running(tmp_path, port, small):
        async with connected(url) as connection:
            await send(connection, limit(1), "c1")
            before = await read_all(connection)

            # then it is not restored there, and what is there is kept
            capsys.readouterr()
            assert await nodepool(url, "restore", "--force", str(folder)) == 1
            error = capsys.readouterr().err
            assert "give it more storage, or restore on another server" in error
            assert await read_all(connection) == before

    # and no more is one with settings that the server does not know
    async with connected(server.url) as connection:
        described = json.loads((folder / "manifest.json").read_text())
        described["info"]["config"]["retention"] = "never"
        (folder / "manifest.json").write_text(json.dumps(described))
        assert await nodepool(server.url, "restore", "--force", str(folder)) == 1
        assert "nothing is restored, and nothing deleted: " in capsys.readouterr().err
        assert await api.last_position(connection, STREAM) == FILLED


async def test_what_was_made_from_another_log_is_not_there_after_a_restore(
    server: NatsServer, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"

    async with connected(server.url) as connection:
        # given a read model and snapshots that are newer than a backup
        async with (
            serving(QUOTA, server, tmp_path / "quota.log", snapshot_after=1),
            serving(AGGREGATOR, server, tmp_path / "aggregator.log", snapshot_after=1),
        ):
            await send(connection, limit(1), "c1")
            await until(lambda: shown(connection, {1}))
            assert await nodepool(server.url, "backup", str(folder)) == 0
            await send(connection, limit(2), "c2")
            await send(connection, limit(3, org="other"), "c3")
            await until(lambda: shown(connection, {2, 3}))
        assert await api.last_position(connection, SNAPSHOTS) > 0

        # when it is restored
        assert await nodepool(server.url, "restore", "--force", str(folder)) == 0

        # then nothing is left of them, and services make what the log says
        assert [name for name in streams() if await stream_info(connection, name)] == [STREAM]
        async with (
            serving(QUOTA, server, tmp_path / "quota.log") as quota,
            serving(AGGREGATOR, server, tmp_path / "aggregator.log"),
        ):
            await until(lambda: shown(connection, {1}))
            log = await read_all(connection)
            assert await replayed(connection, log) == list(dump(quota.replica.safe))


async def shown(connection: Connection, limits: set[int]) -> bool:
    """Whether these are the limits of the quotas in the read model."""
    objects = [json.loads(each.content) for each in await read_all(connection, "KV_quotas")]
    return {each["limit"] for each in objects} == limits


async def test_services_are_found_at_work_among_many_other_readers(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connected(server.url) as connection, serving(QUOTA, server, tmp_path / "log"):
        # given more readers than the server names at once, all of them before the service
        for number in range(READERS):
            name = f"a{number}"
            config = {"name": name, "ack_policy": "none", "inactive_threshold": 60_000_000_000}
            body = {"stream_name": STREAM, "config": config}
            await api.request(connection, f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}", body)
        assert await nodepool(server.url, "backup", str(tmp_path / "backup")) == 0
        capsys.readouterr()
        line = ["restore", "--force", str(tmp_path / "backup")]
        assert await nodepool(server.url, *line) == 1
        assert "at work are quota" in capsys.readouterr().err


@asynccontextmanager
async def backing_up(
    url: str, folder: Path, limit_bytes: int = resource.RLIM_INFINITY
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that makes a backup, and can write no file that is longer than the limit."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodepool.cli", "--url", url, "backup", str(folder)),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def fill_with_noise(connection: Connection) -> None:
    """Fills the log with what cannot be compressed."""
    await fill(connection, [("np.cmd.a._._.X", os.urandom(512)) for _ in range(FILLED)])


async def test_a_backup_that_is_interrupted_leaves_nothing(
    server: NatsServer, tmp_path: Path
) -> None:
    folder = tmp_path / "backups" / "one"
    folder.parent.mkdir()

    # given a backup that cannot end, as most of it does not come
    async with connected(server.url) as connection:
        await fill_with_noise(connection)
    async with stalling(server.url, HALF) as url, backing_up(url, folder) as process:
        await until(lambda: any(path.stat().st_size for path in folder.parent.glob(".*/*")))

        # when it is interrupted
        process.send_signal(signal.SIGINT)
        _, error = await asyncio.wait_for(process.communicate(), PATIENCE_S)

    # then nothing is there
    assert (process.returncode, error) == (130, b"\n")
    assert list(folder.parent.iterdir()) == []


async def test_a_backup_for_which_there_is_no_room_leaves_nothing(
    server: NatsServer, tmp_path: Path
) -> None:
    folder = tmp_path / "backups" / "one"
    folder.parent.mkdir()

    async with connected(server.url) as connection:
        await fill_with_noise(connection)
    async with backing_up(server.url, folder, limit_bytes=HALF) as process:
        _, error = await asyncio.wait_for(process.communicate(), PATIENCE_S)

    assert (process.returncode, error) == (
        1,
        b"error: the backup is not made: File too large\n",
    )
    assert list(folder.parent.iterdir()) == []


def test_a_backup_that_is_cancelled_at_its_end_is_whole_or_is_not_there(
    server: NatsServer, tmp_path: Path
) -> None:
    folder = tmp_path / "backups" / "one"
    folder.parent.mkdir()

    async def cancel_it_at_its_end() -> None:
        async with connected(server.url) as connection:
            await fill(connection, [("np.cmd.a._._.X", b"{}")])
        async with Client(server.url) as client:
            # when it is cancelled as soon as all of it is written
            task = asyncio.create_task(client.admin.backup(folder))
            # The loop is looked at in each of its turns.
            while not task.done() and not any(folder.parent.glob(".*/manifest.json")):  # noqa: ASYNC110
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    for _ in range(ROUNDS):
        # The loop ends before the check, and waits for a thread that would still write.
        asyncio.run(cancel_it_at_its_end())

        # then what is there is whole
        assert [path.name for path in folder.parent.iterdir()] in ([], ["one"])
        if folder.exists():
            check_backup(folder)
            shutil.rmtree(folder)
