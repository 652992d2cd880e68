"""A bare nats-py pipeline: the same hops, subjects, sizes and durability, and no logic at all.

What the control plane is compared with. Each service that hears of a command has a process here,
which hears the same messages. It reads by position, takes what has arrived as one batch, decodes it
and stores as many messages of the same sizes as that service does, as one atomic batch with an
expected sequence. Those that only listen store nothing, and the last one writes the status objects,
the newest of each pool only. A codec decodes and encodes: one of small messages of its own, or one
of the control plane's messages, which does what the control plane does with each of them.
"""

import asyncio
import json
import multiprocessing
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.payload import Codec, Sample

BATCH = 250
"""Inputs in one batch; with three outputs each, as many as one atomic batch can hold."""


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
    """A service without its logic: it hears `heard`, and has outputs to the last of these.

    outputs: what it stores for each of these messages, as the service does for one of them.
    """

    name: str
    heard: tuple[str, ...]
    outputs: tuple[Sample, ...]


async def _hop(url: str, hop: Hop, make: type[Codec], ready: Event) -> None:
    client, codec = await connected(url), make(hop.outputs)
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
            expected_sequence = await _commit(client, hop, codec, batch, expected_sequence)


async def _commit(
    client: Client, hop: Hop, codec: Codec, batch: list[Msg], expected_sequence: int
) -> int:
    number, id = 0, os.urandom(8).hex()
    last_heard = _name(hop.heard[-1])
    for message in batch:
        received = codec.read(message)
        if _name(message.subject) != last_heard:
            continue
        for index in range(len(hop.outputs)):
            number += 1
            subject, content = codec.write(index, received)
            headers = {"Nats-Batch-Id": id, "Nats-Batch-Sequence": str(number)}
            await client.publish(subject, content, headers=headers)
    if not number:
        return expected_sequence
    reply = await client.request(
        f"np.commit.{hop.name}",
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


def _name(subject: str) -> str:
    return subject.rpartition(".")[2]


async def _status(
    url: str, heard: tuple[str, ...], size: int, make: type[Codec], ready: Event
) -> None:
    client, codec = await connected(url), make(())
    newest: dict[str, tuple[str, str]] = {}
    arrived = asyncio.Event()

    def take(message: Msg) -> None:
        received = codec.read(message)
        newest[received.pool] = (_name(message.subject), received.cause)
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


COMMAND = "np.cmd.*.*.*.ApplyNodePool"
VALIDATED = "np.evt.validator.*.*.*.NodePoolValidated"
QUOTA = "np.evt.quota.*.*.*.QuotaChecked"
CAPACITY = "np.evt.capacity.*.*.*.CapacityChecked"


class Bare:
    """The processes of the bare pipeline; `outputs` are samples of what each service says."""

    def __init__(
        self,
        url: str,
        outputs: Mapping[str, Sequence[Sample]],
        status_bytes: int,
        codec: type[Codec],
    ) -> None:
        context = multiprocessing.get_context("spawn")
        hops = (
            Hop("validator", (COMMAND,), tuple(outputs["validator"])),
            Hop("quota", (VALIDATED,), tuple(outputs["quota"])),
            Hop("capacity", (VALIDATED, QUOTA), tuple(outputs["capacity"])),
            Hop("allocator", (VALIDATED, QUOTA, CAPACITY), ()),
            Hop("lifecycle", (VALIDATED,), ()),
        )
        self._processes = []
        self._ready = []
        heard = (VALIDATED, QUOTA, CAPACITY)
        runs: list[tuple[object, ...]] = [(_hop, url, hop, codec) for hop in hops]
        for run in (*runs, (_status, url, heard, status_bytes, codec)):
            ready = context.Event()
            args = (*run, ready)
            self._processes.append(context.Process(target=_process, args=args, daemon=True))
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
        {"name": "BARE", "subjects": ["np.>"], "storage": "file", "allow_atomic": True},
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
