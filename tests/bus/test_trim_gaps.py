"""Readers of a log that was trimmed: each goes on with what is left, or says what is missing."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from agent.host.log import LogReader
from bus.cli import watching
from bus.front_door import ORG, ask, front_door, gateway_at
from bus.harness import PATIENCE_S, connected, fill, restart, until
from bus.test_trimming import SUBJECT, cell, log_of, work
from nodepool.archive.floor import list_services
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.client.gateway_objects import OF_A_CLUSTER
from nodepool.client.mirror import mirror_of
from nodepool.client.trim_gap import TrimGap
from nodepool.contract.commands import AddMachines
from nodepool.local.server import NatsServer
from nodepool.nats.log.streams import STREAM, whole_stream_info
from nodepool.nats.log.trimming import trim
from nodepool.nats.objects import stored_objects
from nodepool.nats.objects.floor_facts import find_standings
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import HeadMissing
from support.constants import H100, ZONE

CLUSTER = "prod"
EVENT = f"np.evt.lifecycle.{ORG}.{CLUSTER}.train.CWNodeDeleted"
MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": H100, "targetNodes": 2},
}


async def trim_all(connection: Connection, position: int) -> int:
    """Trim the log as far as the services at work let it go, beyond a position; return where."""
    while True:
        info = await log_of(connection)
        standings = await find_standings(connection, info)
        floor = min(each.first for each in list_services(standings, info.last))
        if floor > position:
            await trim(connection, info.log, floor, info.last, None)
            return floor
        await fill(connection, [(SUBJECT, b"{}")] * 10)
        await asyncio.sleep(0.1)


@asynccontextmanager
async def trimmed_cell(server: NatsServer, folder: Path) -> AsyncIterator[tuple[Client, int]]:
    """A cell whose NodePool is older than its log, and where the log begins."""
    client = Client(server.url, org="acme", cluster="prod", timeout_s=PATIENCE_S)
    async with connected(server.url) as connection, cell(server, folder), client:
        await client.clusters.register("prod", ZONE)
        await client.quotas.set(ZONE, H100, 9)
        await client.commands.send(AddMachines(zone=ZONE, instance_type=H100, count=4))
        await client.nodepools.apply(MANIFEST)
        await client.nodepools.wait("train", "AtTarget", timeout_s=PATIENCE_S)
        yield client, await trim_all(connection, (await log_of(connection)).last)


async def nodepool(server: NatsServer, *arguments: str) -> int:
    """Return the exit code of a command of an operator."""
    place = ["--url", server.url, "--org", "acme", "--cluster", "prod"]
    return await asyncio.to_thread(run, [*place, *arguments])


async def test_what_is_older_than_the_log_is_still_known_and_can_be_changed(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a NodePool and a cluster whose events were trimmed
    async with trimmed_cell(server, tmp_path) as (client, _):
        # when the operator asks for them, then they are there
        assert await client.clusters.zone() == ZONE
        assert list(await client.clusters.list_registered()) == [("acme", "prod")]
        assert (await client.nodepools.read_stored("train")).spec.target == 2
        assert await client.nodepools.was_stored("train")
        for command in ("get nodepools", "describe nodepool train", "explain nodepool train"):
            assert await nodepool(server, *command.split()) == 0

        # and what the operator changes is done
        assert await nodepool(server, "scale", "nodepool", "train", "--target", "3") == 0
        assert await nodepool(server, "label", "nodepool", "train", "a=b") == 0
        await client.nodepools.wait("train", "AtTarget", timeout_s=PATIENCE_S)
        assert (await client.nodepools.read_stored("train")).spec.target == 3
        capsys.readouterr()

        async def has_processed_all() -> bool:
            return await nodepool(server, "skip", "quota") == 1

        await until(has_processed_all)
        assert "quota has processed all its inputs" in capsys.readouterr().err


async def test_a_client_says_where_the_log_begins_and_never_passes_over_messages(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with trimmed_cell(server, tmp_path) as (client, first):
        # when a person looks back further than the log goes, then a note says where it begins
        for command in ("events --since 2160h", "audit --since 2160h", "dead list"):
            capsys.readouterr()
            assert await nodepool(server, *command.split()) == 0
            assert f"trim gap: the log begins at position {first}" in capsys.readouterr().err

        # and a dead letter that may have been there is not said never to have been
        for command in ("dead show 3", "dead replay 3"):
            assert await nodepool(server, *command.split()) == 1
            said = f"position 3 was trimmed from the log, which begins at {first}: the archive has"
            assert said in capsys.readouterr().err

        # and a program that goes on after a position that is gone does not jump
        with pytest.raises(TrimGap, match=f"positions 6 to {first - 1} are in its archive alone"):
            await anext(client.events.read(after=5))
        assert [each async for each in client.events.read(after=first - 1)] == []


async def subjects_of(connection: Connection, stream: str) -> set[str]:
    """Return the subjects of which the server keeps an index in memory."""
    info = await whole_stream_info(connection, stream, ">")
    assert info is not None
    state = cast("dict[str, object]", info["state"])
    found = set(cast("dict[str, int]", state["subjects"]))
    assert state["num_subjects"] == len(found)
    return found


async def test_the_memory_of_the_server_follows_what_there_is(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a deleted NodePool and one that stays, while marks of deletions are kept for a second
    monkeypatch.setattr(stored_objects, "TOMBSTONE_S", 1)
    async with trimmed_cell(server, tmp_path) as (client, _):
        connection = client.session.connection
        await client.nodepools.apply({**MANIFEST, "metadata": {"name": "gone"}})
        await client.nodepools.wait("gone", "AtTarget", timeout_s=PATIENCE_S)
        await client.nodepools.delete("gone")
        await client.nodepools.wait_until_gone("gone", timeout_s=PATIENCE_S)
        before = await subjects_of(connection, STREAM)

        # when the log is trimmed
        await trim_all(connection, await client.session.last_position())

        # then it has no subject any more of NodePools, Nodes and machines: all were idle meanwhile
        after = await subjects_of(connection, STREAM)
        assert len([each for each in before if ".acme.prod.gone." in each]) > 10
        assert {each for each in after if not each.startswith("np.commit.")} <= {SUBJECT}

        # and the read model has none of what is gone
        async def has_only_what_there_is() -> bool:
            pools, nodes = [await subjects_of(connection, f"KV_{each}") for each in OF_A_CLUSTER]
            return pools == {"$KV.nodepools.acme.prod.train"} and len(nodes) == 2

        await until(has_only_what_there_is)


async def test_a_watch_that_was_away_while_the_log_was_trimmed_says_so(
    server: NatsServer, tmp_path: Path
) -> None:
    watch = ("events", "-w", "--for", "nodepool/train", "--org", "acme", "--cluster", "prod")
    async with trimmed_cell(server, tmp_path) as (client, _):
        # given a person who watches the events of a NodePool
        await client.nodepools.scale("train", 3)
        with watching(server, *watch) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            await asyncio.to_thread(process.stdout.readline)
            assert "train" in await asyncio.to_thread(process.stdout.readline)

            # when the log goes on and is trimmed while the watch is frozen and cut off
            os.kill(process.pid, signal.SIGSTOP)
            await restart(server)
            await client.nodepools.scale("train", 1)
            await client.nodepools.wait("train", "AtTarget", timeout_s=PATIENCE_S)
            await trim_all(client.session.connection, await client.session.last_position())
            os.kill(process.pid, signal.SIGCONT)

            # then it does not go on with the first event that is left
            said = await asyncio.to_thread(process.stderr.read)
            assert "trim gap: the log begins at position" in said
            assert process.wait() == 1


async def test_a_command_whose_message_was_trimmed_is_not_done_again(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a command that was done, and trimmed
        async with cell(server, tmp_path):
            await work(connection, 1)
            await trim_all(connection, (await log_of(connection)).last)

        # when it is sent again to services that start with their snapshots
        async with cell(server, tmp_path) as runtimes:
            (quota,) = [each for each in runtimes if each.service.name == "quota"]
            before = quota.replica.safe.state
            position = (await log_of(connection)).last + 1
            await work(connection, 1)
            await until(lambda: quota.replica.committed >= position)

            # then its outcome is the same, and it changes nothing
            assert quota.replica.safe.state == before


# Agents and the gateway.


async def say_ten(connection: Connection) -> None:
    """Store ten events of a cluster, of which five are trimmed."""
    await fill(connection, [(EVENT, b"{}")] * 10)
    info = await log_of(connection)
    assert await trim(connection, info.log, 6, info.last, None) == 5


async def test_an_agent_does_not_take_what_was_trimmed_for_what_never_was(
    server: NatsServer,
) -> None:
    async with (
        connected(server.url) as connection,
        Client(server.url, org=ORG, cluster=CLUSTER) as client,
    ):
        # given a log that begins after what an agent has noted on its objects
        await say_ten(connection)
        mirror, log = mirror_of(client.session, ""), LogReader()
        await mirror.open()
        log.begin(mirror)

        # when it asks whether the stay of a Node has ended that was written at position 3
        # then it learns that the log does not say so
        with pytest.raises(HeadMissing, match=r"trim gap: .* begins at position 6"):
            await log.has_ended("n1", 1, 3, lambda: 3)
        assert not await log.has_ended("n1", 1, 6, lambda: 6)

        # and so it does when it asks for the states of a NodePool
        assert await log.origins_of("train", 3) == []
        with pytest.raises(HeadMissing, match=r"trim gap: .* what follows 3 is asked for"):
            log.check_reaches(3)
        log.check_reaches(5)


async def test_the_gateway_says_where_the_log_begins(tmp_path: Path) -> None:
    with front_door(tmp_path) as door:
        async with (
            connected(door.url) as connection,
            gateway_at(door),
            door.user("edith") as client,
        ):
            # given a log that was trimmed
            await say_ten(connection)

            # when a user asks for what was before
            asked: dict[str, object] = {"cluster": CLUSTER, "names": ["CWNodeDeleted"]}
            before = await ask(client, "Messages", ORG, **asked, after=2)
            since = await ask(client, "Events", cluster=CLUSTER, since="2020-01-01T00:00:00Z")
            after = await ask(client, "Messages", ORG, **asked, after=7)

            # then the pages say that it is gone, and those of what is there do not
            for page in (before, since):
                assert (page["first"], page["trimmed"]) == (6, True)
            assert [after["first"], "trimmed" in after] == [6, False]
            assert isinstance(before["items"], list)
            assert len(before["items"]) == 5
