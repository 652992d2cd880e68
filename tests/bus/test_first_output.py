"""What a command has to say already is printed before all is read that it will say."""

import asyncio
import subprocess

from bus.cli import lines_until, started
from bus.stalling import stalling
from bus.test_client import CLUSTER, ORG, opened, put, say
from bus.test_reading_writes import changed
from nodepool.contract.events import CWNodePoolScaledUp
from nodepool.local.server import NatsServer
from testbed.ports import free_port

LARGE = "x" * 50_000
EVENTS = 20
"""Events that are much more together than what passes before the way to the server stalls."""
STALLS_AFTER = 300_000


async def test_an_object_is_described_before_its_events_are_read(server: NatsServer) -> None:
    # given a NodePool with many events
    async with opened(server) as (_, connection):
        await say(connection, changed("train", "web"))
        await put(
            connection,
            f"nodepools.{ORG}.{CLUSTER}.train",
            {"metadata": {"name": "train", "labels": {"team": "web"}}},
        )
        scaled = CWNodePoolScaledUp(
            org=ORG, cluster=CLUSTER, pool="train", before=0, after=1, message=LARGE
        )
        for _ in range(EVENTS):
            await say(connection, scaled)

    # when the way to the server stalls amid the events
    async with stalling(server.url, STALLS_AFTER) as url:
        place = ("--url", url, "--org", ORG, "--cluster", CLUSTER)
        command = ("describe", "nodepool", "train", "--request-timeout", "10s")
        with started(free_port(), *place, *command, stderr=subprocess.DEVNULL) as process:
            lines = await asyncio.to_thread(lines_until, process, "Labels")
            process.kill()

    # then the NodePool itself is there
    assert lines[0].split() == ["Name:", "train"]
