"""Real processes under SIGKILL: nothing is lost, doubled, or given to two."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodepool.client import Client, Row
from nodepool.contract.commands import AddMachines, ApplyNodePool, RegisterCluster, SetQuota
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, address_of, envelope_of, subject_of
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.nats import bus
from nodepool.nats.reader import Reader
from support.audit.auditor import violations
from support.processes import House

ZONE, KIND = "US-EAST-04A", "gd-8xh100ib-i128"
POOLS, NODES = 200, 2
STEP = 60
"""How many messages further the log is when the next one is killed."""
PATIENCE_S = 100
"""How long the house may take to bring every NodePool to its target."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("replicas", [1, 2], ids=["one-replica", "two-replicas"])
def test_everything_killed_in_the_middle_of_200_pools_loses_nothing(
    tmp_path: Path, replicas: int
) -> None:
    with House(tmp_path, replicas) as house:
        log, conditions = asyncio.run(_under_fire(house))
        errors = house.errors()

    assert conditions == {"TargetMet": POOLS}
    assert violations(log) == []
    assert _unanswered(log) == []
    assert errors == ""


async def _under_fire(house: House) -> tuple[Sequence[Entry], dict[str, int]]:
    connection = await bus.connect(house.server.url, "test", patience_s=20)
    await bus.provision(connection)
    reader = Reader(connection, bus.STREAM, ["np.>"])
    await reader.open()
    log: list[Entry] = []
    await _send(connection, _site())
    await _grown(reader, log, STEP)
    victims = [*house.names, "server", *reversed(house.names), "server"]
    for number, victim in enumerate(victims):
        first, last = (POOLS * part // len(victims) for part in (number, number + 1))
        await _send(connection, _pools()[first:last])
        await _kill(house, victim)
        await _grown(reader, log, STEP)
    async with asyncio.timeout(PATIENCE_S):
        conditions = await _conditions(house)
    while reader.pending or log[-1].position < await bus.last_position(connection, bus.STREAM):
        log += await reader.next(timeout_s=5)
    await reader.close()
    await connection.close()
    return log, conditions


async def _grown(reader: Reader, log: list[Entry], by: int) -> None:
    """Reads until the log is longer by so much, or nobody is left to say more for the moment."""
    until = len(log) + by
    while len(log) < until:
        found = await reader.next(timeout_s=1)
        if not found:
            return
        log += found


async def _kill(house: House, victim: str) -> None:
    if victim == "server":
        await asyncio.to_thread(house.kill_server)
    else:
        house.kill(victim)


async def _conditions(house: House) -> dict[str, int]:
    """How many NodePools have which AtTarget reason, once all have the one they should."""
    async with Client(house.server.url, org="acme", cluster="prod", timeout_s=30) as client:
        found: dict[str, str] = {}
        async for seen in client.watch("nodepools"):
            if isinstance(seen, Row) and seen.document is not None:
                row = json.loads(json.dumps(seen.document))
                conditions = {c["type"]: c["reason"] for c in row["status"]["conditions"]}
                found[row["metadata"]["name"]] = conditions.get("AtTarget", "")
            if len(found) == POOLS and set(found.values()) == {"TargetMet"}:
                break
    return {reason: list(found.values()).count(reason) for reason in set(found.values())}


def _site() -> list[Command]:
    return [
        RegisterCluster(org="acme", cluster="prod", zone=ZONE),
        SetQuota(org="acme", zone=ZONE, instance_type=KIND, limit=POOLS * NODES),
        AddMachines(zone=ZONE, instance_type=KIND, count=POOLS * NODES + 50),
    ]


def _pools() -> list[Command]:
    return [
        ApplyNodePool(
            org="acme",
            cluster="prod",
            pool=f"p{number}",
            metadata=ManifestMetadata(name=f"p{number}"),
            spec=NodePoolSpec(instance_type=KIND, target_nodes=NODES),
        )
        for number in range(POOLS)
    ]


async def _send(connection: bus.Connection, commands: Sequence[Command]) -> None:
    """Publishes each until it is stored; the id makes that once."""
    for command in commands:
        id = f"{type(command).__name__}-{'/'.join(command.path)}"
        envelope = envelope_of(type(command)).model_construct(
            id=id, type=type(command).__name__, source="test", data=command
        )
        while True:
            try:
                await bus.publish(
                    connection, subject_of(command, ""), envelope.encode(), id=id, timeout_s=1
                )
                break
            except bus.InDoubt:
                await asyncio.sleep(0.02)


def _unanswered(log: Sequence[Entry]) -> list[str]:
    """The commands that have no outcome, or more than one."""
    outcomes: dict[str, int] = {}
    for entry in log:
        address = address_of(entry.subject)
        if address is not None and address.name in ("CommandAccepted", "CommandRefused"):
            id = json.loads(entry.content)["correlationid"]
            outcomes[id] = outcomes.get(id, 0) + 1
    sent = [entry.headers["Nats-Msg-Id"] for entry in log if entry.subject.startswith("np.cmd.")]
    return [id for id in sent if outcomes.get(id) != 1]
