"""The control plane beside a bare pipeline with the same hops, messages and durability."""

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.bare import Bare, set_up
from bench.load import Work, at_target, checked, drive, envelope, pool, prepare, site
from bench.usage import thread_cpu_s
from nodepool.contract.log import Entry
from nodepool.local.binary import find_server
from nodepool.local.server import NatsServer
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import connect
from testbed.ports import free_port
from testbed.processes import ControlPlane


def _bare_finished(entry: Entry) -> str | None:
    last = json.loads(entry.content)["of"] == "capacity"
    return entry.subject.rpartition(".")[2] if last else None


@dataclass(frozen=True)
class Sizes:
    """How many bytes the control plane publishes, so that the bare pipeline publishes as many.

    hops: the outputs of each service to one command.
    status: the NodePool in the read model.
    """

    hops: dict[str, list[int]]
    status: int


async def _sizes(url: str) -> Sizes:
    connection = await connect(url, "bench")
    hops: dict[str, list[int]] = {}
    for name in ("validator", "quota", "capacity"):
        reader = Reader(connection, STREAM, [f"np.evt.{name}.acme.prod.pool-00000.*"])
        await reader.open()
        hops[name] = [len(entry.content) for entry in await reader.next(timeout_s=5)]
        await reader.close()
    reader = Reader(connection, "KV_nodepools", ["$KV.nodepools.acme.prod.pool-00000"])
    await reader.open()
    status = max(len(entry.content) for entry in await reader.next(timeout_s=5))
    await connection.close()
    return Sizes(hops, status)


def control_plane(
    count: int, target: int, window: int, processes: int = 2
) -> tuple[float, list[float], Sizes, float]:
    """`count` NodePools of `target` Nodes: from nothing until every status says so.

    processes: in how many processes the services run.

    Seconds for all, those of each, sizes of what is published, and the server's processor seconds.
    """
    messages = [envelope(pool(number, target), f"c{number}") for number in range(count)]
    finished = at_target if target else checked
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder), processes=processes) as plane,
    ):
        uvloop.run(prepare(plane.server.url, site(count * target)))
        work, before = Work(messages, "nodepools", finished), thread_cpu_s(plane.server.pid)
        seconds, took = uvloop.run(drive(plane.server.url, work, window))
        used = thread_cpu_s(plane.server.pid) - before
        return seconds, took, uvloop.run(_sizes(plane.server.url)), used


def bare(count: int, window: int, sizes: Sizes) -> tuple[float, list[float]]:
    """The same number of commands through the bare pipeline."""
    size = len(envelope(pool(0, 0), "c0")[1])
    messages = []
    for number in range(count):
        name = f"pool-{number:05d}"
        command = {
            "id": f"c{number}",
            "type": "Apply",
            "pool": name,
            "cause": f"c{number}",
            "pad": "",
        }
        command["pad"] = "x" * max(0, size - len(json.dumps(command)))
        messages.append(
            (f"b.cmd.acme.prod.{name}.Apply", json.dumps(command).encode(), f"c{number}")
        )
    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer(Path(folder), free_port(), find_server(None))
        server.start()
        hops = Bare(server.url, sizes.hops, sizes.status)
        try:
            asyncio.run(set_up(server.url))
            hops.start()
            return uvloop.run(drive(server.url, Work(messages, "bare", _bare_finished), window))
        finally:
            hops.stop()
            server.stop()
