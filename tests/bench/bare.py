"""A bare nats-py pipeline: the same hops, messages, sizes and durability, and no logic at all.

What the control plane is compared with. Each service that hears of a command has a process here,
which hears the same messages. It reads by position, takes what has arrived as one batch, decodes it
and stores as many messages of the same sizes as that service does, as one atomic batch with an
expected sequence. Those that only listen store nothing, and the last one writes the status objects,
the newest of each pool only.
"""

import asyncio
import json
import multiprocessing
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel

BATCH = 250
"""Inputs in one batch; with three outputs each, as many as one atomic batch can hold."""


class Payload(BaseModel):
    """A message of the bare pipeline; `pad` brings it to the size of the control plane's own."""

    id: str
    type: str
    pool: str
    cause: str
    pad: str


EMPTY_BYTES = len(
    Payload(
        id="c00000-0", type="Event", pool="pool-00000", cause="c00000", pad=""
    ).model_dump_json()
)


async def connected(url: str) -> Client:
    """A connection that can hold many messages in flight."""
    client = Client()
    await client.connect(servers=[url], pending_size=8 << 20)
    return client


async def reading(
    client: Client, stream: str, filters: list[str], take: Callable[[Msg], None]
) -> None:
    """Calls `take` with every message that matches, by position and without acknowledging."""
    inbox, name = client.new_inbox(), f"r{os.urandom(6).hex()}"
    config = {
        "name": name,
        "ack_policy": "none",
        "deliver_policy": "all",
        "filter_subjects": filters,
        "mem_storage": True,
    }
    body = json.dumps({"stream_name": stream, "action": "create", "config": config}).encode()
    reply = await client.request(f"$JS.API.CONSUMER.CREATE.{stream}.{name}", body, timeout=5)
    assert b'"error"' not in reply.data, reply.data
    pull = json.dumps({"batch": 512, "expires": 60_000_000_000}).encode()
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    credit = 1024

    async def arrived(message: Msg) -> None:
        nonlocal credit
        if not message.reply:
            return
        take(message)
        credit -= 1
        if credit <= 512:
            credit += 512
            await client.publish(subject, pull, reply=inbox)

    await client.subscribe(inbox, cb=arrived)
    await client.publish(subject, pull, reply=inbox)
    await client.publish(subject, pull, reply=inbox)


@dataclass(frozen=True)
class Hop:
    """A service without its logic: it hears `heard`, and has outputs to the last of these."""

    name: str
    heard: tuple[str, ...]
    sizes: tuple[int, ...]


async def _hop(url: str, hop: Hop, ready: Event) -> None:
    client = await connected(url)
    pending: list[Msg] = []
    arrived = asyncio.Event()

    def take(message: Msg) -> None:
        pending.append(message)
        arrived.set()

    await reading(client, "BARE", list(hop.heard), take)
    expected_sequence = 0
    ready.set()
    while True:
        await arrived.wait()
        arrived.clear()
        while pending:
            batch, pending[:] = pending[:BATCH], pending[BATCH:]
            expected_sequence = await _commit(client, hop, batch, expected_sequence)


async def _commit(client: Client, hop: Hop, batch: list[Msg], expected_sequence: int) -> int:
    number, id = 0, os.urandom(8).hex()
    name, sizes, last_heard = hop.name, hop.sizes, hop.heard[-1].split(".")[1]
    for message in batch:
        received = Payload.model_validate_json(message.data)
        if message.subject.split(".")[1] != last_heard:
            continue
        for index, size in enumerate(sizes):
            number += 1
            last = index == len(sizes) - 1
            output = Payload(
                id=f"{received.id}-{index}",
                type="Event",
                pool=received.pool,
                cause=received.cause,
                pad="x" * max(0, size - EMPTY_BYTES),
            )
            content = output.model_dump_json().encode()
            headers = {"Nats-Batch-Id": id, "Nats-Batch-Sequence": str(number)}
            kind = "Last" if last else "Other"
            await client.publish(
                f"b.{name}.acme.prod.{received.pool}.{kind}", content, headers=headers
            )
    if not number:
        return expected_sequence
    reply = await client.request(
        f"bc.{name}",
        b'{"position": 0}',
        timeout=30,
        headers={
            "Nats-Batch-Id": id,
            "Nats-Batch-Sequence": str(number + 1),
            "Nats-Batch-Commit": "1",
            "Nats-Expected-Last-Subject-Sequence": str(expected_sequence),
        },
    )
    stored = json.loads(reply.data)
    assert "error" not in stored, stored
    return int(stored["seq"])


async def _status(url: str, heard: tuple[str, ...], size: int, ready: Event) -> None:
    client = await connected(url)
    newest: dict[str, tuple[str, str]] = {}
    arrived = asyncio.Event()

    def take(message: Msg) -> None:
        received = Payload.model_validate_json(message.data)
        newest[received.pool] = (message.subject.split(".")[1], received.cause)
        arrived.set()

    await reading(client, "BARE", list(heard), take)
    stream = client.jetstream(timeout=30)
    ready.set()
    while True:
        await arrived.wait()
        arrived.clear()
        todo = dict(newest)
        newest.clear()
        sent = [
            await stream.publish_async(
                f"$KV.bare.{pool}",
                json.dumps({"of": kind, "last": cause, "pad": "x" * size}).encode(),
            )
            for pool, (kind, cause) in todo.items()
        ]
        await asyncio.gather(*sent)


def _process(run: Callable[..., Awaitable[None]], *args: object) -> None:
    uvloop.run(run(*args))  # type: ignore[arg-type]


COMMAND, VALIDATED = "b.cmd.>", "b.validator.*.*.*.Last"
QUOTA, CAPACITY = "b.quota.*.*.*.Last", "b.capacity.*.*.*.Last"


class Bare:
    """The processes of the bare pipeline; `sizes` are the bytes of each service's outputs."""

    def __init__(self, url: str, sizes: dict[str, list[int]], status_bytes: int) -> None:
        context = multiprocessing.get_context("spawn")
        hops = (
            Hop("validator", (COMMAND,), tuple(sizes["validator"])),
            Hop("quota", (VALIDATED,), tuple(sizes["quota"])),
            Hop("capacity", (VALIDATED, QUOTA), tuple(sizes["capacity"])),
            Hop("allocator", (VALIDATED, QUOTA, CAPACITY), ()),
            Hop("lifecycle", (VALIDATED,), ()),
        )
        self._processes = []
        self._ready = []
        for hop in hops:
            ready = context.Event()
            args = (_hop, url, hop, ready)
            self._processes.append(context.Process(target=_process, args=args, daemon=True))
            self._ready.append(ready)
        ready = context.Event()
        status = (_status, url, (VALIDATED, QUOTA, CAPACITY), status_bytes, ready)
        self._processes.append(context.Process(target=_process, args=status, daemon=True))
        self._ready.append(ready)

    def start(self) -> None:
        """Starts every hop and waits until all listen."""
        for process in self._processes:
            process.start()
        for ready in self._ready:
            if not ready.wait(30):
                sys.exit("the bare pipeline did not start")

    def stop(self) -> None:
        """Ends every hop."""
        for process in self._processes:
            process.kill()
            process.join()


async def set_up(url: str) -> None:
    """The streams of the bare pipeline, with the durability of the control plane's own."""
    client = await connected(url)
    for config in (
        {"name": "BARE", "subjects": ["b.>", "bc.>"], "storage": "file", "allow_atomic": True},
        {
            "name": "KV_bare",
            "subjects": ["$KV.bare.>"],
            "storage": "file",
            "max_msgs_per_subject": 1,
            "persist_mode": "async",
        },
    ):
        reply = await client.request(
            f"$JS.API.STREAM.CREATE.{config['name']}", json.dumps(config).encode(), timeout=10
        )
        assert b'"error"' not in reply.data, reply.data
    await client.close()
