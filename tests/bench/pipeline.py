"""The control plane beside a bare pipeline with the same hops, messages and durability."""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.bare import Bare, set_up
from bench.decoding import Decoding
from bench.load import (
    PATIENCE_S,
    Work,
    at_target,
    checked,
    drive,
    envelope,
    pool,
    prepare,
    site,
)
from bench.payload import Codec, Padding, Sample
from bench.usage import cpu_s, thread_cpu_s
from nodepool.contract.log import Entry
from nodepool.local.binary import find_server
from nodepool.local.server import NatsServer
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import connect
from testbed.ports import free_port
from testbed.processes import ControlPlane

FIRST = 20
"""How many commands come before those that are timed alone: they load what all later ones use."""


def _bare_finished(entry: Entry) -> str | None:
    last = json.loads(entry.content)["of"] == "CapacityChecked"
    return entry.subject.rpartition(".")[2] if last else None


@dataclass(frozen=True)
class Samples:
    """What the control plane publishes for a NodePool; the bare pipeline publishes the same.

    hops: the outputs of each service to a command.
    status: the bytes of the NodePool in the read model.
    """

    hops: dict[str, list[Sample]]
    status: int


class Run(NamedTuple):
    """NodePools from nothing until every status says so.

    seconds: for all NodePools.
    took: for each of them, sorted.
    server_cpu_s, services_cpu_s: the processor time of the server and of all services, in seconds.
    """

    seconds: float
    took: Sequence[float]
    server_cpu_s: float
    services_cpu_s: float


async def _sample(url: str) -> Samples:
    connection = await connect(url, "bench")
    hops: dict[str, list[Sample]] = {}
    for name in ("validator", "quota", "capacity"):
        reader = Reader(connection, STREAM, [f"np.evt.{name}.acme.prod.pool-00000.*"])
        await reader.open()
        hops[name] = [
            Sample(entry.subject, entry.content) for entry in await reader.next(timeout_s=5)
        ]
        await reader.close()
    reader = Reader(connection, "KV_nodepools", ["$KV.nodepools.acme.prod.pool-00000"])
    await reader.open()
    status = max(len(entry.content) for entry in await reader.next(timeout_s=5))
    await connection.close()
    return Samples(hops, status)


def control_plane(count: int, target: int, window: int) -> tuple[Run, Samples]:
    """Run `count` NodePools of `target` Nodes on a new control plane in two processes."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), processes=2) as plane:
        run = create_pools(plane, count, target, window)
        return run, uvloop.run(_sample(plane.server.url))


def create_pools(
    plane: ControlPlane, count: int, target: int, window: int, patience_s: float = PATIENCE_S
) -> Run:
    """Create `count` NodePools of `target` Nodes, once the machines for them are known.

    Raises TimeoutError if either takes more than `patience_s` seconds.
    """
    url, (server, *services) = plane.server.url, plane.pids()
    uvloop.run(prepare(url, site(count * target), patience_s))
    if target:
        # The log has one order: with the verdicts on this NodePool, all machines are counted.
        create_probe(plane, count, patience_s)
    messages = [envelope(pool(number, target), f"c{number}") for number in range(count)]
    work = Work(messages, "nodepools", at_target if target else checked)
    server_s, services_s = thread_cpu_s(server), sum(map(cpu_s, services))
    seconds, took = uvloop.run(drive(url, work, window, patience_s))
    server_s, services_s = thread_cpu_s(server) - server_s, sum(map(cpu_s, services)) - services_s
    return Run(seconds, took, server_s, services_s)


def create_probe(plane: ControlPlane, number: int, patience_s: float = PATIENCE_S) -> float:
    """Create a NodePool without Nodes; return after how many seconds all verdicts are visible."""
    work = Work([envelope(pool(number, 0), f"c{number}")], "nodepools", checked)
    return uvloop.run(drive(plane.server.url, work, 1, patience_s))[0]


def apply_one_by_one(count: int) -> Sequence[float]:
    """Return how long each of `count` applies took until its verdicts were visible, sorted."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), processes=2) as plane:
        url = plane.server.url
        uvloop.run(prepare(url, site(0)))
        for numbers in (range(FIRST), range(FIRST, FIRST + count)):
            messages = [envelope(pool(number, 0), f"c{number}") for number in numbers]
            _, took = uvloop.run(drive(url, Work(messages, "nodepools", checked), 1))
        return took


def bare(count: int, window: int, samples: Samples) -> float:
    """Return the seconds of as many commands in the bare pipeline."""
    return _run_bare(list(_pad_commands(count)), window, samples, Padding)


def bare_with_decoding(count: int, window: int, samples: Samples) -> float:
    """Return the same for a bare pipeline that decodes and encodes the messages as the product."""
    messages = [envelope(pool(number, 0), f"c{number}") for number in range(count)]
    return _run_bare(messages, window, samples, Decoding)


def _pad_commands(count: int) -> Iterator[tuple[str, bytes, str]]:
    subject, content, _ = envelope(pool(0, 0), "c0")
    for number in range(count):
        id, name = f"c{number}", f"pool-{number:05d}"
        command = {"id": id, "type": "Apply", "pool": name, "cause": id, "pad": ""}
        command["pad"] = "x" * max(0, len(content) - len(json.dumps(command)))
        yield subject.replace("pool-00000", name), json.dumps(command).encode(), id


def _run_bare(
    messages: Sequence[tuple[str, bytes, str]], window: int, samples: Samples, codec: type[Codec]
) -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        NatsServer(Path(folder), free_port(), find_server(None)) as server,
    ):
        hops = Bare(server.url, samples.hops, samples.status, codec)
        try:
            asyncio.run(set_up(server.url))
            hops.start()
            return uvloop.run(drive(server.url, Work(messages, "bare", _bare_finished), window))[0]
        finally:
            hops.stop()
