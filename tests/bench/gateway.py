"""What the gateway costs, and what one organisation can do to another one at the door."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.door import DoorSender, NotStoredError, raw
from bench.load import KIND, PATIENCE_S, ZONE, Work, checked, drive, envelope, pool, prepare, site
from bench.usage import cpu_s
from nodepool.contract.commands import ApplyNodePool, RegisterCluster, SetQuota
from nodepool.contract.messages import Command
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.log.reader import Reader
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import connect
from nodepool.nats.wire.waiting import until_first
from testbed.paused import pause_process
from testbed.processes import ControlPlane

ORG, OTHER = "acme", "evil"
GATEWAY = "gateway.0"
UNLIMITED = {
    f"NODEPOOL_GATEWAY_{name}": "999999999999"
    for name in ("MESSAGES_PER_SECOND", "MESSAGES_BURST", "BYTES_PER_HOUR")
}
FIRST = 100
"""How many commands come before those that are timed."""
COMMANDS = 15
"""How many commands are timed beside each burden, one after the other."""
PAUSE_S = 0.02
READY_S = 60.0
OTHERS_POOLS = 300
"""How many NodePools the other organisation has, for answers that are large."""
REQUESTS = 500
"""How many queries are sent at once."""

Burden = Callable[[str, Access], Coroutine[None, None, None]]
"""What the other organisation does until it is cancelled, with its address and its key."""


class Pipeline(NamedTuple):
    """The seconds of the same commands until every status shows them, by the way they came."""

    direct_s: float
    gateway_s: float


class Carried(NamedTuple):
    """The seconds until as many commands are acknowledged, by the way they came.

    cpu_s: the processor time of the gateway for them, in seconds.
    """

    direct_s: float
    gateway_s: float
    cpu_s: float


class Latency(NamedTuple):
    """From a command to all its verdicts, in milliseconds: the median, and the longest."""

    median_ms: float
    longest_ms: float


def _plane(folder: str, **settings: str) -> ControlPlane:
    return ControlPlane(Path(folder), settings=settings, processes=2, organisations=(ORG, OTHER))


def pipelines(count: int, window: int) -> Pipeline:
    """Return how long as many NodePools take that the platform's sender and a user create."""
    with tempfile.TemporaryDirectory() as folder, _plane(folder, **UNLIMITED) as plane:
        url, operator, owner = plane.server.url, plane.access(), plane.access(ORG)
        uvloop.run(prepare(url, site(0), access=operator))
        uvloop.run(_until_ready(url, owner))

        def seconds(first: int, count: int, through: Access | None) -> float:
            messages = [envelope(pool(n, 0), f"c{n}") for n in range(first, first + count)]
            work = Work(messages, "nodepools", checked)
            return uvloop.run(drive(url, work, window, access=operator, through=through))[0]

        seconds(0, FIRST, None), seconds(FIRST, FIRST, owner)
        direct_s = seconds(2 * FIRST, count, None)
        return Pipeline(direct_s, seconds(2 * FIRST + count, count, owner))


def carry(count: int, window: int) -> Carried:
    """Return how long as many commands take until they are stored; no service reads them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _plane(folder, **UNLIMITED) as plane,
        ExitStack() as paused,
    ):
        url, operator, owner = plane.server.url, plane.access(), plane.access(ORG)
        uvloop.run(prepare(url, site(0), access=operator))
        uvloop.run(_until_ready(url, owner))
        for name in plane.names:
            if name != GATEWAY:
                paused.enter_context(pause_process(plane.pid(name)))
        uvloop.run(_store(url, owner, DoorSender, range(FIRST), window))
        direct = range(FIRST, FIRST + count)
        direct_s = uvloop.run(_store(url, operator, Publisher, direct, window))
        used_s, through = cpu_s(plane.pid(GATEWAY)), range(FIRST + count, FIRST + 2 * count)
        gateway_s = uvloop.run(_store(url, owner, DoorSender, through, window))
        return Carried(direct_s, gateway_s, cpu_s(plane.pid(GATEWAY)) - used_s)


async def _store(
    url: str, access: Access, sender: type[Publisher | DoorSender], numbers: range, window: int
) -> float:
    """Return after how many seconds every command is acknowledged, `window` at a time."""
    messages: Iterator[tuple[str, bytes, str]] = iter(
        [envelope(pool(number, 0), f"c{number}") for number in numbers]
    )
    connection = await connect(url, "bench", access=access)
    publisher = sender(connection, window)
    await publisher.open()

    async def send() -> None:
        for subject, content, _ in messages:
            await publisher.publish(subject, content)

    began = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(window)))
    seconds = time.perf_counter() - began
    await connection.close()
    return seconds


async def _until_ready(url: str, owner: Access) -> None:
    """Return once the gateway takes commands."""
    connection = await connect(url, "bench", access=owner)
    sender = DoorSender(connection, 1)
    await sender.open()
    subject, content, _ = envelope(pool(0, 0), "ready")
    async with asyncio.timeout(READY_S):
        while True:
            with suppress(NotStoredError):
                await sender.publish(subject, content)
                break
            await asyncio.sleep(PAUSE_S)
    await connection.close()


# What another organisation does.


def neighbours(flood: int) -> dict[str, Latency]:
    """Return the latency of a command through the gateway beside each burden; the first is none."""
    burdens: dict[str, Burden] = {
        "idle": _nothing,
        f"floods {flood:,} commands": lambda url, access: _flood(url, access, flood, again=False),
        "keeps flooding": lambda url, access: _flood(url, access, flood, again=True),
        "opens watches": _watch,
        "sends refused commands": _send_refused,
        "reads slowly": _read_slowly,
    }
    with tempfile.TemporaryDirectory() as folder, _plane(folder) as plane:
        url, operator, owner = plane.server.url, plane.access(), plane.access(ORG)
        uvloop.run(prepare(url, [*site(0), *_site_of_other()], access=operator))
        uvloop.run(_until_ready(url, owner))
        other = plane.access(OTHER)
        found = {}
        for number, (name, burden) in enumerate({"first": _nothing, **burdens}.items()):
            found[name] = uvloop.run(
                _latency(url, owner, operator, burden(url, other), 1 + number * COMMANDS)
            )
        del found["first"]  # Its commands load what all later ones use.
        return found


def _site_of_other() -> list[Command]:
    return [
        RegisterCluster(org=OTHER, cluster="prod", zone=ZONE),
        SetQuota(org=OTHER, zone=ZONE, instance_type=KIND, limit=1_000),
        *(
            pool(number, 0).model_copy(update={"org": OTHER, "cluster": "prod"})
            for number in range(OTHERS_POOLS)
        ),
    ]


async def _latency(
    url: str,
    owner: Access,
    operator: Access,
    burden: Coroutine[None, None, None],
    first: int,
) -> Latency:
    bus = await connect(url, "bench", access=operator)
    connection = await connect(url, "bench", access=owner)
    sender = DoorSender(connection, 1)
    await sender.open()
    objects = Reader(bus, "KV_nodepools", [f"$KV.nodepools.{ORG}.>"], newest=True)
    await objects.open()
    took: list[float] = []

    async def apply_all() -> None:
        await asyncio.sleep(10 * PAUSE_S)
        for number in range(first, first + COMMANDS):
            took.append(await _applied(sender, objects, pool(number, 0)))
            await asyncio.sleep(PAUSE_S)

    async def bear() -> None:
        await burden
        await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE_S):
        await until_first(apply_all(), bear())
    await objects.close()
    for each in (bus, connection):
        await each.close()
    return Latency(statistics.median(took) * 1e3, max(took) * 1e3)


async def _applied(sender: DoorSender, objects: Reader, command: ApplyNodePool) -> float:
    subject, content, _ = envelope(command, f"n{command.pool}")
    began = time.perf_counter()
    while True:
        with suppress(NotStoredError):
            await sender.publish(subject, content)
            break
        await asyncio.sleep(PAUSE_S)
    while True:
        for entry in await objects.next():
            if entry.content and checked(entry) == command.pool:
                return time.perf_counter() - began


async def _nothing(_url: str, _access: Access) -> None:
    return


async def _flood(url: str, access: Access, count: int, *, again: bool) -> None:
    """Publish so many commands at once, and perhaps as many again once the server has them."""
    content = b'{"targetNodes":1}'
    lines = b"".join(
        b"PUB np.cmd.%b.prod.p%d.ScaleNodePool %d\r\n%b\r\n"
        % (OTHER.encode(), number, len(content), content)
        for number in range(count)
    )
    async with raw(url, access) as connection:
        while True:
            await connection.send(lines)
            await connection.until_taken()
            if not again:
                return


async def _request(url: str, access: Access, subject: str, content: bytes, *, read: bool) -> None:
    """Send the same request over and over, and drop the replies or leave them unread."""
    inbox = f"{access.reply_prefix()}.bench"
    line = f"PUB {subject} {inbox}.1 {len(content)}\r\n".encode() + content + b"\r\n"
    while True:
        # The server ends the connection of a client that reads too slowly.
        with suppress(OSError, asyncio.IncompleteReadError):
            async with raw(url, access) as connection:
                await connection.send(f"SUB {inbox}.> 1\r\n".encode())
                while True:
                    await connection.send(line * REQUESTS)
                    await (connection.until_taken() if read else asyncio.sleep(PAUSE_S))
        await asyncio.sleep(PAUSE_S)


async def _watch(url: str, access: Access) -> None:
    """Open watches over and over; each waits as long as it may."""
    connection = await connect(url, "bench", access=access)
    query = b'{"kind":"nodepools","limit":1}'
    async with asyncio.timeout(PATIENCE_S):
        listed = await connection.request(f"np.api.{OTHER}.List", query, timeout=PATIENCE_S)
    await connection.close()
    revision = listed.data.partition(b'"revision":"')[2].partition(b'"')[0]
    content = b'{"kind":"nodepools","waitSeconds":20,"since":"%b"}' % revision
    await _request(url, access, f"np.api.{OTHER}.Watch", content, read=True)


async def _send_refused(url: str, access: Access) -> None:
    """Send commands that are no commands."""
    subject = f"np.cmd.{OTHER}.prod.p.ScaleNodePool"
    await _request(url, access, subject, b'{"targetNodes":-1}', read=True)


async def _read_slowly(url: str, access: Access) -> None:
    """Ask for the largest answers, and read none."""
    content = b'{"kind":"nodepools","limit":500}'
    await _request(url, access, f"np.api.{OTHER}.List", content, read=False)
