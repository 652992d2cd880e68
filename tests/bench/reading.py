"""What reading a position of the log costs the server, in each way that a reader has."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import uvloop

import allocator.decide
from bench.usage import thread_cpu_s
from nodepool.local.binary import find_server
from nodepool.local.server import NatsServer
from nodepool.nats.log.api import last_position, request
from nodepool.nats.log.consumers import consumer_config
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.connection import Connection, connect
from testbed.ports import free_port

FILTERS = allocator.decide.SERVICE.filters()
ROUNDS = 5
"""How often each way is tried."""
MESSAGES = 200
"""How many messages each consumer reads."""


class Cost(NamedTuple):
    """Of one way to read: what it is, and what beginning and each message cost, in microseconds."""

    way: str
    begin_us: float
    message_us: float


def reading_costs(messages: int) -> Sequence[Cost]:
    """Measured on a log of so many messages, most of them on a subject of their own."""
    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer(Path(folder), free_port(), find_server(None))
        with server:
            return uvloop.run(_costs(server, messages))


async def _costs(server: NatsServer, messages: int) -> Sequence[Cost]:
    connection = await connect(server.url, "bench")
    await provision(connection)
    await _fill(connection, messages)
    last = await last_position(connection, STREAM)
    far = 2  # The beginning of a block of the stream, which holds some ten thousand messages.
    ways = (
        ("without filters, far behind", (), far),
        ("without filters, near the end", (), last - MESSAGES),
        (f"{len(FILTERS)} filters, near the end", FILTERS, last - MESSAGES),
        (f"{len(FILTERS)} filters, far behind", FILTERS, far),
    )
    costs = [await _cost(server, connection, *way) for way in ways]
    await connection.close()
    return costs


def _subjects(messages: int) -> Iterator[str]:
    kinds = (
        ("allocator", "CWNodeAssigned"),
        ("lifecycle", "CWNodeRegistered"),
        ("quota", "QuotaChecked"),
    )
    for number in range(messages):
        service, kind = kinds[number % 3]
        yield f"np.evt.{service}.acme.prod.p{number // 4}.{kind}"


async def _fill(connection: Connection, messages: int) -> None:
    publisher = Publisher(connection, 1_000)
    await publisher.open()
    content = b"x" * 600
    subjects = list(_subjects(messages))
    for first in range(0, messages, 1_000):
        some = subjects[first : first + 1_000]
        await asyncio.gather(*(publisher.publish(subject, content, {}) for subject in some))


async def _cost(
    server: NatsServer, connection: Connection, way: str, filters: Sequence[str], start: int
) -> Cost:
    before = thread_cpu_s(server.pid)
    for number in range(ROUNDS):
        await _begin(connection, f"b{start}-{len(filters)}-{number}", filters, start)
    begun = thread_cpu_s(server.pid)
    for number in range(ROUNDS):
        await _read(connection, f"b{start}-{len(filters)}-{number}")
    read = thread_cpu_s(server.pid)
    each = 1e6 / ROUNDS
    return Cost(way, (begun - before) * each, (read - begun) * each / MESSAGES)


async def _begin(connection: Connection, name: str, filters: Sequence[str], start: int) -> None:
    config = {"name": name} | consumer_config(filters, start, newest=False)
    body = {"stream_name": STREAM, "action": "create", "config": config}
    await request(connection, f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}", body)


async def _read(connection: Connection, name: str) -> None:
    inbox, left = connection.new_inbox(), MESSAGES
    done = asyncio.Event()

    async def count(_message: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    subscription = await connection.subscribe(inbox, cb=count)
    pull = b'{"batch": %d, "no_wait": true}' % MESSAGES
    await connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}", pull, reply=inbox)
    async with asyncio.timeout(60):
        await done.wait()
    await subscription.unsubscribe()
