"""Real processes under SIGKILL: no command is lost or doubled, and no machine given twice."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodepool.client import Client, Object
from nodepool.contract.commands import AddMachines, ApplyNodePool, RegisterCluster, SetQuota
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, envelope_of
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.contract.services import SERVICES
from nodepool.contract.subjects import address_of, subject_of
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import InDoubt
from support.audit.auditor import violations
from testbed.processes import ControlPlane

ZONE, KIND = "US-EAST-04A", "gd-8xh100ib-i128"
POOLS, NODES = 200, 2
STEP = 60
"""By how many messages the log grows before the next process is killed."""
PATIENCE_S = 100
"""How long the control plane may take to bring every NodePool to its target."""


@pytest.mark.parametrize(
    ("replicas", "processes"),
    [(1, len(SERVICES)), (2, len(SERVICES)), (2, 2)],
    ids=["one-replica", "two-replicas", "two-replicas-in-shared-processes"],
)
def test_everything_killed_in_the_middle_of_200_pools_loses_nothing(
    tmp_path: Path, replicas: int, processes: int
) -> None:
    with ControlPlane(tmp_path, replicas, processes=processes) as plane:
        log, conditions = asyncio.run(_under_fire(plane))
        errors = plane.errors()

    assert conditions == {"TargetMet": POOLS}
    assert violations(log) == []
    assert _without_outcome(log) == []
    assert errors == ""


async def _under_fire(plane: ControlPlane) -> tuple[Sequence[Entry], dict[str, int]]:
    connection = await connect(plane.server.url, "test", patience_s=20)
    await provision(connection)
    reader = Reader(connection, STREAM, ["np.>"])
    await reader.open()
    log: list[Entry] = []
    await _send(connection, _site())
    await _grown(reader, log, STEP)
    victims = [*plane.names, "server", *reversed(plane.names), "server"]
    victims *= max(1, len(SERVICES) // len(plane.names))
    for number, victim in enumerate(victims):
        first, last = (POOLS * part // len(victims) for part in (number, number + 1))
        await _send(connection, _pools()[first:last])
        await _kill(plane, victim)
        await _grown(reader, log, STEP)
    async with asyncio.timeout(PATIENCE_S):
        conditions = await _conditions(plane)
    while reader.pending or log[-1].position < await api.last_position(connection, STREAM):
        log += await reader.next(timeout_s=5)
    await reader.close()
    await connection.close()
    return log, conditions


async def _grown(reader: Reader, log: list[Entry], by: int) -> None:
    """Reads until the log is longer by so much, or nothing more is published for a second."""
    until = len(log) + by
    while len(log) < until:
        entries = await reader.next(timeout_s=1)
        if not entries:
            return
        log += entries


async def _kill(plane: ControlPlane, victim: str) -> None:
    if victim == "server":
        await asyncio.to_thread(plane.kill_server)
    else:
        plane.kill(victim)


async def _conditions(plane: ControlPlane) -> dict[str, int]:
    """The number of NodePools by the reason of their AtTarget condition, once all have met it."""
    async with Client(plane.server.url, org="acme", cluster="prod", timeout_s=30) as client:
        reasons: dict[str, str] = {}
        async for change in client.nodepools.watch():
            if isinstance(change, Object) and change.document is not None:
                pool = json.loads(json.dumps(change.document))
                conditions = {c["type"]: c["reason"] for c in pool["status"]["conditions"]}
                reasons[pool["metadata"]["name"]] = conditions.get("AtTarget", "")
            if len(reasons) == POOLS and set(reasons.values()) == {"TargetMet"}:
                break
    return dict(Counter(reasons.values()))


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


async def _send(connection: Connection, commands: Sequence[Command]) -> None:
    """Publishes each command until it is stored, some of them twice."""
    for command in commands:
        id = f"{type(command).__name__}-{'/'.join(command.path)}"
        envelope = envelope_of(type(command)).model_construct(
            id=id, type=type(command).__name__, source="test", data=command
        )
        while True:
            try:
                await api.publish_event(
                    connection, subject_of(command, ""), envelope.encode(), timeout_s=1
                )
                break
            except InDoubt:
                await asyncio.sleep(0.02)


def _without_outcome(log: Sequence[Entry]) -> list[str]:
    """The commands that have not one outcome each time that they were stored."""
    outcomes: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for entry in log:
        address = address_of(entry.subject)
        if address is not None and address.name in ("CommandAccepted", "CommandRefused"):
            id = json.loads(entry.content)["correlationid"]
            outcomes[id] += 1
        elif address is not None and address.kind == "cmd":
            sent[json.loads(entry.content)["id"]] += 1
    return [id for id, times in sent.items() if outcomes[id] != times]
