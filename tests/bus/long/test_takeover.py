"""Services as processes of their own on a real server: one is killed or stopped, others go on."""

import asyncio
import json
import os
import signal
import time
from contextlib import ExitStack
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
    outcomes,
    read_all,
    send,
    until,
)
from nodepool.client import Client
from nodepool.contract.commands import PreemptNode
from nodepool.contract.services import SERVICES
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from support.audit.auditor import violations
from support.constants import H100, ZONE
from testbed.ports import free_port
from testbed.processes import ControlPlane

TAKEOVER_S = 1.0
AT_WORK_S = 1.0
"""How long a takeover and a restart of the server may hold up work."""
MANY = 30
"""How many commands are sent around a pause of the leader."""


async def ready(*replicas: ReplicaProcess) -> None:
    """Returns once each replica is ready."""
    await until(lambda: all(each.is_ready() for each in replicas))


async def process(connection: Connection, number: int) -> None:
    """Sends a command and waits for its outcome."""
    await send(connection, limit(number), f"c{number}")
    await outcome(connection, f"c{number}")


async def leader_and_follower(
    one: ReplicaProcess, other: ReplicaProcess
) -> tuple[ReplicaProcess, ReplicaProcess]:
    """The leader and the follower of two replicas."""
    await until(lambda: one.metric("nodepool_leading") + other.metric("nodepool_leading") == 1)
    return (one, other) if one.metric("nodepool_leading") else (other, one)


async def test_a_follower_takes_over_within_a_second_after_its_leader_was_killed(
    server: NatsServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        async with connected(server.url) as connection:
            one, other = (
                stack.enter_context(launched("quota", server, tmp_path, free_port()))
                for _ in range(2)
            )
            took: list[float] = []
            for number in range(ROUNDS):
                # given two replicas, one of which leads
                await ready(one, other)
                await process(connection, 2 * number)
                leading, following = await leader_and_follower(one, other)

                # when the leader is killed, and a command is sent
                os.kill(leading.pid, signal.SIGKILL)
                began = time.monotonic()
                await process(connection, 2 * number + 1)
                took.append(time.monotonic() - began)

                # then the follower soon processes it, and leads
                await until(lambda it=following: it.metric("nodepool_leading") == 1)
                if took[-1] <= TAKEOVER_S:
                    break
                one = following
                other = stack.enter_context(launched("quota", server, tmp_path, free_port()))
            assert min(took) <= TAKEOVER_S
            assert set(map(len, (await outcomes(connection)).values())) == {1}


async def test_a_leader_that_was_stopped_for_a_while_repeats_nothing(
    server: NatsServer, tmp_path: Path
) -> None:
    with (
        launched("quota", server, tmp_path, free_port()) as one,
        launched("quota", server, tmp_path, free_port()) as other,
    ):
        async with connected(server.url) as connection:
            await ready(one, other)
            await process(connection, 0)
            for number in range(1, 6):
                # given a leader that is stopped with open inputs
                leading, following = await leader_and_follower(one, other)
                numbers = range(number * MANY, (number + 1) * MANY)
                for command in numbers[:5]:
                    await send(connection, limit(command), f"c{command}")
                os.kill(leading.pid, signal.SIGSTOP)

                # when the follower processes them and others before it continues
                for command in numbers[5:]:
                    await send(connection, limit(command), f"c{command}")
                await outcome(connection, f"c{numbers[-1]}")
                os.kill(leading.pid, signal.SIGCONT)
                await process(connection, 1_000 + number)

                # then each command has one outcome
                await until(lambda it=following: it.metric("nodepool_leading") >= 0)
                by_command = await outcomes(connection)
                assert {f"c{number}" for number in numbers} <= by_command.keys()
                assert set(map(len, by_command.values())) == {1}
            assert violations(await read_all(connection)) == []
            assert (one.errors(), other.errors()) == ("", "")


@pytest.mark.parametrize("away_s", [0, 4], ids=["at once", "after a while"])
async def test_every_service_is_at_work_a_second_after_the_server_is_back(
    tmp_path: Path, away_s: float
) -> None:
    with ControlPlane(tmp_path) as plane:
        async with (
            connected(plane.server.url) as connection,
            Client(plane.server.url, org="acme", cluster="prod", timeout_s=30) as client,
        ):
            # given a control plane with a NodePool at its target
            await client.clusters.register("prod", ZONE)
            await client.quotas.set(ZONE, H100, 100)
            await client.fleet.add_machines(ZONE, H100, 100)
            pool = {"metadata": {"name": "p"}, "spec": {"instanceType": H100, "targetNodes": 1}}
            await client.nodepools.apply({"apiVersion": API, "kind": "NodePool", **pool})
            await client.nodepools.wait("p", "AtTarget", timeout_s=30)
            took: list[float] = []
            for number in range(ROUNDS):
                # when the server is killed and is back, and there is work for every service
                before = await api.last_position(connection, STREAM)
                await asyncio.to_thread(plane.server.kill)
                gone = time.monotonic()
                await until(lambda since=gone: time.monotonic() - since >= away_s)
                await asyncio.to_thread(plane.server.start)
                began = asyncio.get_running_loop().time()
                sending = asyncio.create_task(send_work(plane.server.url, number + 2))

                # then every service has committed within the time limit
                await all_at_work(connection, before + 1)
                took.append(asyncio.get_running_loop().time() - began)
                await sending
                await client.nodepools.wait("p", "AtTarget", timeout_s=30)
                if took[-1] <= AT_WORK_S:
                    break
            assert min(took) <= AT_WORK_S, took
        assert plane.errors() == ""


API = "compute.coreweave.com/v1alpha1"


async def send_work(url: str, target: int) -> None:
    """A larger target is work for all services but preemption, which gets a command to refuse."""
    async with connected(url) as connection:
        preempt = PreemptNode(org="acme", cluster="prod", pool="p", node="missing")
        await send(connection, preempt, f"preempt-{target}")
        subject = "np.cmd.acme.prod.p.ScaleNodePool"
        await api.publish(connection, subject, json.dumps({"targetNodes": target}).encode())


async def all_at_work(connection: Connection, start: int) -> None:
    """Returns once every service has committed, and the NodePool in the read model is a new one."""
    log = Reader(connection, STREAM, ["np.commit.*"], start=start)
    await log.open()
    silent = {f"np.commit.{name}" for name in SERVICES if name != "aggregator"}
    async with asyncio.timeout(PATIENCE_S):
        while silent:
            silent -= {entry.subject for entry in await log.next()}
    await log.close()

    async def is_new() -> bool:
        entry = await api.last_message(connection, "KV_nodepools", "$KV.nodepools.acme.prod.p")
        return entry is not None and int(entry.headers["Nodepool-Version"]) > start

    await until(is_new)
