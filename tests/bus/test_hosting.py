"""Several services in one process: each does its own work, whatever becomes of the others."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path

from bus.harness import (
    PATIENCE_S,
    connected,
    fill,
    launched,
    limit,
    outcome,
    read_all,
    send,
    serving,
    until,
)
from nodepool.contract.commands import RegisterCluster
from nodepool.host.hosting import Hosted, Hosting
from nodepool.host.session import READ_MAX
from nodepool.host.settings import Settings
from nodepool.local.server import NatsServer
from nodepool.nats.log.streams import provision
from nodepool.service import Service
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE
from testbed.ports import free_port
from validator.decide import SERVICE as VALIDATOR

COMMANDS = 3_000
"""More than several commits of the largest size hold."""


class Breaking(Service):  # type: ignore[type-arg]  # Of any state and messages.
    """A service with a bug: it cannot say what it reads when its first two sessions begin."""

    starts = 0

    def filters(self) -> tuple[str, ...]:
        Breaking.starts += 1
        if Breaking.starts <= 2:
            raise RuntimeError("a bug")
        return super().filters()


@asynccontextmanager
async def hosting(
    hosted: Sequence[Hosted], server: NatsServer, folder: Path
) -> AsyncIterator[Hosting]:
    """These services at work in this process, until the end of the context."""
    made = Hosting(hosted, Settings(url=server.url, log_file=str(folder / "{service}.log")))
    stop = asyncio.Event()
    task = asyncio.create_task(made.run(stop))
    try:
        yield made
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


async def test_the_services_of_a_process_do_the_work_that_each_would_do_alone(
    server: NatsServer, tmp_path: Path
) -> None:
    name, log_file = "nodepool.host validator quota", str(tmp_path / "{service}.log")
    with launched(name, server, tmp_path, free_port(), log_file=log_file) as process:
        async with connected(server.url) as connection:
            # given a process of two services
            # when each of them gets a command
            await send(connection, RegisterCluster(org="acme", cluster="prod", zone=ZONE), "one")
            await send(connection, limit(5), "two")
            results = [await outcome(connection, id) for id in ("one", "two")]

            # then each has processed its own, and the process is ready
            assert [each["source"] for each in results] == ["validator", "quota"]
            assert [each["type"] for each in results] == ["CommandAccepted", "CommandAccepted"]
            await until(lambda: asyncio.to_thread(process.is_ready))

        # and when it is asked to stop
        process.process.send_signal(signal.SIGTERM)

        # then both stop in order, and each has written its own log
        assert process.process.wait(PATIENCE_S) == 0
        assert process.errors() == ""
        for name in ("validator", "quota"):
            text = (tmp_path / f"{name}.log").read_text()
            lines = [json.loads(line) for line in text.splitlines()]
            assert {line["service"] for line in lines} == {name}
            events = [line["event"] for line in lines if line["event"] != "snapshot saved"]
            assert [events[0], events[-1]] == ["started", "stopping"]


def quota_of(org: str) -> tuple[str, bytes]:
    """The subject and the content of a command that sets the quota of an organisation."""
    content = {"zone": ZONE, "instanceType": H100, "limit": 5}
    return f"np.cmd.{org}._._.SetQuota", json.dumps(content).encode()


async def test_a_service_that_crashes_begins_again_while_the_others_work_on(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a process of two services, of which one has a bug that ends it twice
    Breaking.starts = 0
    broken = Breaking(**{each.name: getattr(VALIDATOR, each.name) for each in fields(VALIDATOR)})
    async with (
        hosting([Hosted(broken), Hosted(QUOTA)], server, tmp_path) as process,
        connected(server.url) as connection,
    ):
        # when it has crashed
        await until(lambda: "crashed" in (process.obstacle() or ""))

        # then the process says which service is not ready and why, and the other one works
        assert process.obstacle() == "validator: it has crashed: RuntimeError: a bug"
        await send(connection, limit(5), "one")
        assert (await outcome(connection, "one"))["source"] == "quota"

        # and once it starts without a crash, it works as well
        await send(connection, RegisterCluster(org="acme", cluster="prod", zone=ZONE), "two")
        assert (await outcome(connection, "two"))["type"] == "CommandAccepted"
        await until(lambda: process.obstacle() is None)


async def test_a_service_with_much_to_do_lets_the_others_work_after_each_commit(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        hosting([Hosted(QUOTA), Hosted(VALIDATOR)], server, tmp_path) as process,
    ):
        # given two services at work in one process
        await until(lambda: process.obstacle() is None)

        # when one of them gets thousands of commands, and the other one a command in their midst
        commands = [quota_of(f"org-{number}") for number in range(COMMANDS)]
        await fill(connection, commands[: COMMANDS // 2])
        await send(connection, RegisterCluster(org="acme", cluster="prod", zone=ZONE), "other")
        await fill(connection, commands[COMMANDS // 2 :])
        await send(connection, limit(5), "last")
        for id in ("other", "last"):
            await outcome(connection, id)

        # then the other service has processed its command before the first was done
        subjects = [entry.subject for entry in await read_all(connection)]
        registered = subjects.index("np.evt.validator.acme.prod._.ClusterRegistered")
        assert "np.commit.quota" in subjects[registered:]
        assert "np.evt.quota.acme._._.CommandAccepted" in subjects[registered:]


async def test_a_service_that_reads_much_lets_the_others_work_every_thousand_messages(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a log with more messages than may be read in one turn
        await provision(connection)
        commands = [quota_of(f"org-{number}") for number in range(COMMANDS)]
        await fill(connection, commands)

        # when a service reads it, and something else in the process looks at each of its own turns
        read, seen = 0, 0
        async with serving(QUOTA, server, tmp_path / "quota.log", wait=False) as runtime:
            while read < len(commands):
                await asyncio.sleep(0)
                before, read = read, runtime.replica.read_to
                seen = max(seen, read - before)

    # then the service has read a thousand messages at most between two of these turns
    assert 0 < seen <= READ_MAX
