"""How punctual preemptions are, when very many begin in the same second and the server restarts."""

import asyncio
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from bench.load import KIND, ZONE
from nodepool.client import Client, Preemption
from nodepool.contract.commands import MACHINES_MAX, RunPod
from nodepool.contract.model import API_VERSION
from nodepool.contract.model import KIND as KIND_OF_POOL
from nodepool.contract.pods import Pod, PodClass
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER
from testbed.processes import ControlPlane

GRACE_S = 3_600
"""The Pods would run on for so long; they are ended at seven minutes."""
BEFORE_S = 5.0
"""How long before the drain, and before the end, the server is killed and started again."""
AFTER_S = 30.0
"""How long after the end the log is read."""


class Delays(NamedTuple):
    """How late one stage of all preemptions was, in seconds; negative where one was early."""

    first: float
    median: float
    last: float


class Punctuality(NamedTuple):
    """How many Nodes were preempted, within how many seconds, and how late each stage was.

    lost: how many Pods were ended at seven minutes.
    """

    nodes: int
    begun_within: float
    drain: Delays
    end: Delays
    lost: int


def preemptions(nodes: int) -> Punctuality:
    """Measured with so many Nodes, on each of which a Pod runs, in eight minutes."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        began = asyncio.run(_begin(plane.server.url, nodes))
        for moment in (DRAIN_AFTER, GONE_AFTER):
            _wait((began + moment).timestamp() - BEFORE_S - time.time())
            plane.kill_server()
        _wait((began + GONE_AFTER).timestamp() + AFTER_S - time.time())
        return _measured(asyncio.run(_listed(plane.server.url, began)))


def _wait(seconds: float) -> None:
    """Waits for so long: here the clock is what is measured."""
    threading.Event().wait(max(0.0, seconds))


async def _begin(url: str, nodes: int) -> datetime:
    """Has so many spot Nodes with a Pod each, and preempts them all; when that was asked for."""
    async with Client(url, org="acme", cluster="prod", timeout_s=120) as client:
        await client.clusters.register("prod", ZONE)
        await client.quotas.set(ZONE, KIND, nodes)
        for first in range(0, nodes, MACHINES_MAX):
            await client.fleet.add_machines(ZONE, KIND, min(MACHINES_MAX, nodes - first))
        spec = {"instanceType": KIND, "targetNodes": nodes, "computeClass": "spot"}
        head = {"apiVersion": API_VERSION, "kind": KIND_OF_POOL}
        await client.nodepools.apply({**head, "metadata": {"name": "cheap"}, "spec": spec})
        await client.nodepools.wait("cheap", "AtTarget", timeout_s=300)
        pod = Pod(name="job", interruption=PodClass.GRACEFUL, grace_s=GRACE_S)
        machines = [each.key.rpartition(".")[2] for each in await client.nodes.list()]
        runs = [RunPod(zone=ZONE, machine=machine, pod=pod) for machine in machines]
        await client.commands.send_many(runs)
        began = datetime.now(UTC)
        await client.capacity.reclaim(ZONE, KIND, nodes)
        return began


async def _listed(url: str, began: datetime) -> list[Preemption]:
    async with Client(url, org="acme", cluster="prod", timeout_s=120) as client:
        return await client.events.preemptions(since=began - timedelta(seconds=5))


def _measured(found: list[Preemption]) -> Punctuality:
    begun = sorted(each.began for each in found)
    return Punctuality(
        len(found),
        (begun[-1] - begun[0]).total_seconds(),
        _delays([(each.drained, each.began + DRAIN_AFTER) for each in found]),
        _delays([(each.gone, each.began + GONE_AFTER) for each in found]),
        sum(each.lost for each in found),
    )


def _delays(moments: list[tuple[datetime | None, datetime]]) -> Delays:
    """The delays of a stage, which each of them has reached."""
    late = sorted((came - due).total_seconds() for came, due in moments if came is not None)
    assert len(late) == len(moments), f"{len(moments) - len(late)} Nodes never got there"
    return Delays(late[0], late[len(late) // 2], late[-1])
