"""What one organisation can do to another: how long its command takes, as a ratio to idle."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import uvloop

from bench.load import KIND, ZONE, checked, envelope, pool, prepare, site, within
from nodepool.contract.affinity import (
    EXPRESSIONS_MAX,
    TERMS_MAX,
    VALUES_MAX,
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from nodepool.contract.commands import AddMachines, ApplyNodePool, RegisterCluster, SetQuota
from nodepool.contract.messages import Command
from nodepool.nats.log import api
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.log.reader import Reader
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import Busy, InDoubt
from testbed.paused import pause_process
from testbed.processes import ControlPlane

RACK, SLOT = "node.coreweave.cloud/rack", "node.coreweave.cloud/slot"
RACKS, IN_RACK = 40, 25
"""How many machines there are, and in how many racks, for affinities to be held against."""
COMMANDS = 15
"""How many commands are timed in each situation, one after the other."""
PAUSE_S = 0.02
FLOOD_SUBJECT, FLOOD = "np.cmd.evil.prod.p%d.ScaleNodePool", b'{"targetNodes":1}'
IN_FLIGHT_MAX = 1_000
BEHIND_S = 120.0
"""How long a command may take behind a flood."""

Burden = Callable[[str], Coroutine[None, None, None]]
"""What the other organisation does; it is given the server's address, and cancelled at the end."""


class Latency(NamedTuple):
    """From a command to all its verdicts, in milliseconds: the median, and the longest."""

    median_ms: float
    longest_ms: float


class Neighbours(NamedTuple):
    """The latency of one organisation while another does nothing, floods, or is demanding.

    behind_ms: of a single command that comes while all of a flood waits in the log.
    """

    idle: Latency
    flooded: Latency
    affinity: Latency
    behind_ms: float


def neighbours(flood: int) -> Neighbours:
    """Measured beside the largest affinities, and after so many unacknowledged commands at once.

    A flood that goes on takes all that the disk can store: no bound of a service helps then.
    Raises TimeoutError if the command that comes behind a flood takes more than `BEHIND_S` seconds.
    """
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        url = plane.server.url
        uvloop.run(prepare(url, [*site(0), *_evil_site()]))

        async def flooding(url: str) -> None:
            await _flood(url, flood)

        burdens: Sequence[Burden] = (_nothing, _nothing, _demand, flooding)
        first, idle, demanding, flooded = (
            uvloop.run(_latency(url, burden, number * COMMANDS))
            for number, burden in enumerate(burdens)
        )
        assert first, "the first commands load what all later ones have loaded"
        behind_s = uvloop.run(_time_behind(plane, flood, len(burdens) * COMMANDS))
        return Neighbours(idle, flooded, demanding, behind_s * 1e3)


async def _time_behind(plane: ControlPlane, flood: int, number: int) -> float:
    """Return the seconds of a command that is sent when all of a flood is stored and waits.

    The services are paused while the flood is stored, because they refuse it as fast.
    """
    url, (_, *services) = plane.server.url, plane.pids()
    connection = await connect(url, "bench")
    objects = Reader(connection, "KV_nodepools", ["$KV.nodepools.acme.>"], newest=True)
    await objects.open()
    with ExitStack() as paused:
        for pid in services:
            paused.enter_context(pause_process(pid))
        await _store_flood(url, flood)
    async with within(BEHIND_S, lambda: f"a command behind {flood:,} others has no verdicts"):
        took = await _applied(connection, objects, number)
    await objects.close()
    await connection.close()
    return took


async def _store_flood(url: str, count: int) -> None:
    """Publish so many commands, and return when each of them is acknowledged."""
    connection = await connect(url, "evil")
    publisher = Publisher(connection, IN_FLIGHT_MAX)
    await publisher.open()
    for first in range(0, count, IN_FLIGHT_MAX):
        some = range(first, min(count, first + IN_FLIGHT_MAX))
        await asyncio.gather(*(publisher.publish(FLOOD_SUBJECT % n, FLOOD) for n in some))
    await connection.close()


def _evil_site() -> list[Command]:
    machines = [
        AddMachines(
            zone=ZONE,
            instance_type=KIND,
            count=IN_RACK,
            labels={RACK: f"r{rack}", SLOT: f"s{rack}"},
        )
        for rack in range(RACKS)
    ]
    return [
        RegisterCluster(org="evil", cluster="prod", zone=ZONE),
        SetQuota(org="evil", zone=ZONE, instance_type=KIND, limit=1_000),
        *machines,
    ]


async def _latency(url: str, burden: Burden, first: int) -> Latency:
    connection = await connect(url, "bench")
    objects = Reader(connection, "KV_nodepools", ["$KV.nodepools.acme.>"], newest=True)
    await objects.open()
    task = asyncio.create_task(burden(url))
    await asyncio.sleep(PAUSE_S)
    took = []
    for number in range(first, first + COMMANDS):
        took.append(await _applied(connection, objects, number))
        await asyncio.sleep(PAUSE_S)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await objects.close()
    await connection.close()
    return Latency(statistics.median(took) * 1e3, max(took) * 1e3)


async def _applied(connection: Connection, objects: Reader, number: int) -> float:
    command = pool(number, 0)
    subject, content, _ = envelope(command, f"n{number}")
    began = time.perf_counter()
    while True:
        with suppress(Busy, InDoubt):
            await api.publish_event(connection, subject, content)
            break
        await asyncio.sleep(PAUSE_S)
    while True:
        for entry in await objects.next():
            if entry.content and checked(entry) == command.pool:
                return time.perf_counter() - began


async def _nothing(_url: str) -> None:
    return


async def _flood(url: str, count: int) -> None:
    """So many unacknowledged commands, all at once."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    published = (
        b"PUB %s %d\r\n%s\r\n" % ((FLOOD_SUBJECT % n).encode(), len(FLOOD), FLOOD)
        for n in range(count)
    )
    writer.write(b'CONNECT {"verbose":false}\r\n' + b"".join(published) + b"PING\r\n")
    while await reader.readline() != b"PONG\r\n":
        pass
    writer.close()


async def _demand(url: str) -> None:
    """NodePools with the largest affinity, which no machine satisfies, changed without a pause."""
    connection = await connect(url, "evil")
    for number in range(1_000_000):
        spec = pool(0, 1 + number % 2).spec.model_copy(update={"affinity": _largest(number)})
        name = f"evil-{number % 20}"
        metadata = pool(0, 0).metadata.model_copy(update={"name": name})
        command = ApplyNodePool(org="evil", cluster="prod", pool=name, metadata=metadata, spec=spec)
        subject, content, _ = envelope(command, f"evil-{number}")
        with suppress(Busy, InDoubt):
            await api.publish_event(connection, subject, content)


def _largest(number: int) -> Affinity:
    slots = [
        NodeSelectorRequirement(key=SLOT, operator="NotIn", values=("-",))
        for _ in range(EXPRESSIONS_MAX - 1)
    ]
    of_term = VALUES_MAX // TERMS_MAX - len(slots)
    terms = tuple(
        NodeSelectorTerm(
            match_expressions=(
                *slots,
                NodeSelectorRequirement(
                    key=RACK,
                    operator="In",
                    values=tuple(f"none-{number}-{term}-{each}" for each in range(of_term)),
                ),
            )
        )
        for term in range(TERMS_MAX)
    )
    selector = NodeSelector(node_selector_terms=terms)
    return Affinity(
        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
    )
