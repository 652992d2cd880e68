"""How long `--at` takes in a cell with many Nodes: the longest is the end of a busy day.

The log is that of a world in virtual time, archived with one snapshot set at the start of the day.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random
from typing import NamedTuple

from support.archived import Archiving
from support.constants import CLUSTER, ORG
from support.world_harness import WorldHarness

NODES = 100
"""How many Nodes each NodePool has."""
SEED = 4
SEGMENT = 30_000
"""The most messages of a segment: some 20 MB before compression."""
COMMANDS = (
    ("get", "nodepools"),
    ("get", "nodes", "-o", "yaml"),
    ("describe", "np", "p0"),
    ("explain", "np", "p0"),
    ("events",),
)


class At(NamedTuple):
    """What a command took at a moment, in seconds.

    messages: how many lie between the snapshot and the moment.
    """

    command: str
    messages: int
    seconds: float


def past(nodes: int, messages: int) -> Iterator[At]:
    """Measure commands at moments of a day with so many messages, in a cell with so many Nodes."""
    with tempfile.TemporaryDirectory() as name:
        folder, began, world = Path(name), 0, WorldHarness()
        pools = [f"p{number}" for number in range(nodes // NODES)]
        world.given_data_center(machines=nodes + NODES, quota=nodes + NODES)
        for pool in pools:
            world.apply(pool, NODES)
        world.pass_time(minutes=30)
        archiving = Archiving(folder, world.world.log.id, SEED, SEGMENT)
        began = len(world.world.log.entries)
        asyncio.run(_archive(archiving, world, with_set=True))
        moments = [(began, world.world.log.clock)]
        for end in (messages // 2, messages):
            _churn(world, pools, began + end)
            moments.append((len(world.world.log.entries), world.world.log.clock))
        world.given_quota(nodes + 1)
        asyncio.run(_archive(archiving, world, with_set=False))
        for position, moment in moments:
            for command in COMMANDS:
                yield At(" ".join(command), position - began, _measure(command, moment, folder))


async def _archive(archiving: Archiving, world: WorldHarness, *, with_set: bool) -> None:
    await archiving.add(world.world.log.entries)
    if with_set:
        replicas = (host.replica for host in world.world.hosts)
        await archiving.add_set(replicas, world.world.log.entries, world.world.log.clock)


def _churn(world: WorldHarness, pools: list[str], until: int) -> None:
    """NodePools shrink and grow, until the log has so many messages."""
    chance = Random(SEED)
    while len(world.world.log.entries) < until:
        pool = chance.choice(pools)
        world.scale(pool, 0)
        world.pass_time(minutes=3)
        world.scale(pool, NODES)
        world.pass_time(minutes=3)


def _measure(command: tuple[str, ...], moment: datetime, folder: Path) -> float:
    where = ("--org", ORG, "--cluster", CLUSTER)
    at = ("--at", moment.isoformat(), "--archive", str(folder))
    words = [sys.executable, "-m", "nodepool.cli", *where, *command, *at]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    began = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True, env=environment)
    return time.perf_counter() - began


if __name__ == "__main__":
    nodes, messages = map(int, sys.argv[1:] or (10_000, 120_000))
    for each in past(nodes, messages):
        print(f"{each.command}, {each.messages} messages after the snapshot: {each.seconds:.2f} s")
