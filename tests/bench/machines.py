"""Measures real machines at rest and while they boot: one process of `metal`, and one server."""

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.load import within
from bench.machine import describe_machine
from bench.racks import KIND, ZONE, name_of, start_controllers, write_inventory
from bench.table import Line, Machine, format_table, write_part
from bench.usage import cpu_s, read_memory
from bus.harness import ReplicaProcess, launched
from nodepool.contract.events import CWNodeAssigned
from nodepool.contract.messages import wrap
from nodepool.contract.subjects import subject_of
from nodepool.local.binary import find_server
from nodepool.local.ports import HOST
from nodepool.local.server import NatsServer
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.connection import Connection, connect
from support.certificates import certificates
from testbed.pages import page
from testbed.ports import free_port

BOOTED = 500
"""How many machines boot together."""
SETTLE_S, REST_S = 5.0, 60.0
"""The pause after the last machine was added, and the time at rest that is measured."""
NEW_S = 0.5
"""How long to wait for a new event until none is expected."""
PATIENCE_S = 180.0
PAGE = Path(__file__).parents[2] / "deploy" / "SCALING.md"
HEAD = (
    "Machines",
    "TLS",
    "Added, s",
    "Requests per minute",
    "CPU of `metal`, ms",
    "CPU of the server, ms",
    "Memory of `metal`, MB",
    "Messages per hour",
    f"{BOOTED} boot, s",
)


class Counts(NamedTuple):
    """The counts up to a moment.

    told: what the controllers have counted since they were last asked.
    metal_s, server_s: processor time.
    """

    at: float
    told: Counter[str]
    metal_s: float
    server_s: float


class Rest(NamedTuple):
    """The measurements of machines that have nothing to do, and of some that boot.

    has_tls: whether their controllers speak TLS.
    added_s: from the start of the process until the last of them was added.
    requests: to each controller in a minute, by kind.
    connections: to each controller in a minute. most: the requests to one of them in a minute.
    metal_ms, server_ms: processor time per machine in a minute.
    memory_mb: of the process.
    messages: per machine in an hour, by name.
    booted_s: from the first assignment until the last of `BOOTED` machines had booted.
    """

    machines: int
    has_tls: bool
    added_s: float
    requests: dict[str, float]
    connections: float
    most: float
    metal_ms: float
    server_ms: float
    memory_mb: float
    messages: dict[str, float]
    booted_s: float

    @property
    def all_requests(self) -> float:
        """The requests to each controller in a minute."""
        return sum(self.requests.values())

    @property
    def all_messages(self) -> float:
        """The messages per machine in an hour."""
        return sum(self.messages.values())


def list_lines(options: argparse.Namespace) -> Iterator[Line]:
    """Yield lines for each number of machines, and write them into the page if that is asked.

    The most machines are measured with TLS, too.
    """
    found = []
    sizes = [(machines, False) for machines in options.machines]
    for machines, has_tls in (*sizes, (max(options.machines), True)):
        each = asyncio.run(_measure(machines, has_tls=has_tls))
        found.append(each)
        yield from _lines_of(each)
    if options.write:
        write_part(PAGE, "machines", format_machines(describe_machine(), found))


def _lines_of(rest: Rest) -> Iterator[Line]:
    what = f"{rest.machines:,} real machines{' with TLS' if rest.has_tls else ''}"
    yield Line(f"{what}, added after, s", f"{rest.added_s:.1f}")
    kinds = ", ".join(f"{count:.1f} {kind}" for kind, count in sorted(rest.requests.items()))
    shown = f"{rest.all_requests:.1f}: {kinds}; the most to one {rest.most:.1f}"
    yield Line(f"{what}, requests per machine and minute", shown)
    yield Line(f"{what}, connections per machine and minute", f"{rest.connections:.1f}")
    used = f"{rest.metal_ms:.1f} metal, {rest.server_ms:.2f} server"
    yield Line(f"{what}, CPU per machine and minute, ms", used)
    yield Line(f"{what}, memory of the process, MB", f"{rest.memory_mb:.0f}")
    names = "".join(f", {count:.2f} {name}" for name, count in sorted(rest.messages.items()))
    yield Line(f"{what}, messages per machine and hour", f"{rest.all_messages:.2f}{names}")
    yield Line(f"{what}, {min(rest.machines, BOOTED)} boot together, s", f"{rest.booted_s:.1f}")


def format_machines(machine: Machine, found: Sequence[Rest]) -> str:
    """Return the table, under a sentence that says where and when it was measured."""
    rows = [
        (
            f"{each.machines:,}",
            "yes" if each.has_tls else "no",
            f"{each.added_s:.1f}",
            f"{each.all_requests:.1f}",
            f"{each.metal_ms:.1f}",
            f"{each.server_ms:.2f}",
            f"{each.memory_mb:.0f}",
            f"{each.all_messages:.2f}",
            f"{each.booted_s:.1f}",
        )
        for each in found
    ]
    return f"\n{machine}. One run for each line.\n\n{format_table(HEAD, rows)}\n"


async def _measure(machines: int, *, has_tls: bool) -> Rest:
    """Measure a number of machines in a new log."""
    with tempfile.TemporaryDirectory(prefix="nodepool-bench-") as name:
        folder = Path(name)
        tls = certificates(folder) if has_tls else None
        with (
            start_controllers(machines, tls) as ports,
            NatsServer(folder / "nats", free_port(), find_server(None)) as server,
        ):
            connection = await connect(server.url, "bench")
            await provision(connection)
            reader = Reader(connection, STREAM, ["np.evt.>"])
            await reader.open()
            inventory = str(write_inventory(folder, ports[1:], tls))
            began = time.perf_counter()
            with launched("metal", server, folder, free_port(), inventory=inventory) as process:
                await _until(reader, "MachineAdded", machines)
                added_s = time.perf_counter() - began
                site = Site(server, process, ports[0])
                await asyncio.sleep(SETTLE_S)
                await _list_new(reader)
                before = await site.look()
                await asyncio.sleep(REST_S)
                after, said = await site.look(), await _list_new(reader)
                memory_mb = read_memory(process.pid).rss
                booted_s = await _boot(connection, reader, min(machines, BOOTED))
            await reader.close()
            await connection.close()
    minutes, per = (after.at - before.at) / 60, machines * (after.at - before.at) / 60
    connections, most = after.told.pop("connections"), after.told.pop("most")
    return Rest(
        machines,
        has_tls,
        added_s,
        {kind: count / per for kind, count in after.told.items()},
        connections / per,
        most / minutes,
        (after.metal_s - before.metal_s) / per * 1e3,
        (after.server_s - before.server_s) / per * 1e3,
        memory_mb,
        {name: count / per * 60 for name, count in said.items()},
        booted_s,
    )


class Site(NamedTuple):
    """The programs that are measured. port: where the controllers report their counts."""

    server: NatsServer
    process: ReplicaProcess
    port: int

    async def look(self) -> Counts:
        """Return the counts so far."""
        told = await asyncio.to_thread(page, f"http://{HOST}:{self.port}/")
        assert self.server.pid is not None, "the server runs"
        return Counts(
            time.perf_counter(),
            Counter(json.loads(told)),
            cpu_s(self.process.pid),
            cpu_s(self.server.pid),
        )


async def _boot(connection: Connection, reader: Reader, machines: int) -> float:
    """Assign a number of machines; return the seconds until the last machine has booted."""
    publisher = Publisher(connection)
    await publisher.open()
    began = time.perf_counter()
    for number in range(machines):
        event = CWNodeAssigned(
            org="acme",
            cluster="prod",
            pool="train",
            node=name_of(number),
            zone=ZONE,
            assignment=1,
            uid="u",
            instance_type=KIND,
            message="assigned",
        )
        envelope = wrap(event, id=f"assigned-{number}", source=event.speaker)
        await publisher.send(subject_of(event, event.speaker), envelope.encode())
    await _until(reader, "MachineBooted", machines)
    return time.perf_counter() - began


async def _until(reader: Reader, name: str, count: int) -> None:
    """Return once a number of new events have this name."""
    seen = 0
    async with within(PATIENCE_S, lambda: f"{seen} of {count} {name}"):
        while seen < count:
            entries = await reader.next()
            seen += sum(each.subject.endswith(f".{name}") for each in entries)


async def _list_new(reader: Reader) -> Counter[str]:
    """Return how many new events of each name there are."""
    found = Counter[str]()
    while entries := await reader.next(timeout_s=NEW_S):
        found.update(each.subject.rpartition(".")[2] for each in entries)
    return found
