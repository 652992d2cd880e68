"""Whether a restart takes longer the longer the log is: the same Nodes, and ever more messages."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.pipeline import create_probe
from bench.usage import cpu_s
from faults.cell.bus import Sender, connected, end
from faults.cell.churn import Churn
from nodepool.contract.log import LOG
from nodepool.contract.services import SERVICES
from nodepool.nats.log.api import last_position
from nodepool.nats.log.streams import provision
from nodepool.nats.wire.connection import connect
from testbed.processes import ControlPlane

TIMES = 5
"""How often all services are killed at each length of the log; the median counts."""
QUIET_S = 5.0
PROBES = 90_000
"""The numbers of the NodePools that show that all services work, beyond those of the churn."""


class Age(NamedTuple):
    """A restart of all services at once, when the log had so many messages.

    all_s: from SIGKILL until a new NodePool has all its verdicts, in seconds.
    cpu_s: the processor time of all services until then.
    services_s: until each had read what its snapshot lacks, by its name.
    """

    messages: int
    all_s: float
    cpu_s: float
    services_s: dict[str, float]


def measure_ages(nodes: int, lengths: Sequence[int]) -> Iterator[Age]:
    """Yield the restarts of a control plane at each of these lengths of its log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ControlPlane(folder, processes=2) as plane:
            churn = Churn(1, nodes)
            for number, length in enumerate(lengths):
                churn.begin_anew()
                last = asyncio.run(_grow(plane.server.url, churn, length))
                taken = [_restart(plane, PROBES + TIMES * number + n) for n in range(TIMES)]
                all_s, used_s = (statistics.median(each) for each in zip(*taken, strict=True))
                yield Age(last, all_s, used_s, _caught_up(folder))


async def _grow(url: str, churn: Churn, length: int) -> int:
    """Returns the last position once the log has so many messages, and nothing comes any more."""
    connection, client = await connect(url, "bench"), await connected(url)
    await provision(connection)
    sender = Sender(client)
    await churn.prepare(sender)
    works = [asyncio.create_task(work) for work in (churn.run(sender), churn.watch(client))]
    last = 0
    while last < length:
        assert not any(work.done() for work in works), "the load goes on"
        await asyncio.sleep(QUIET_S / 10)
        last = await last_position(connection, LOG)
    await end(works)
    before = -1
    while before < last:
        before = last
        await asyncio.sleep(QUIET_S)
        last = await last_position(connection, LOG)
    await client.close()
    await connection.close()
    return last


def _restart(plane: ControlPlane, number: int) -> tuple[float, float]:
    """The seconds that it took, and those of the processor."""
    began = time.perf_counter()
    for name in plane.names:
        plane.kill(name)
    create_probe(plane, number)
    _, *services = plane.pids()
    return time.perf_counter() - began, sum(map(cpu_s, services))


def _caught_up(folder: Path) -> dict[str, float]:
    """The median of the last restarts of each service, as its log has them."""
    found = dict[str, float]()
    for service in SERVICES:
        seconds = list[float]()
        for line in (folder / f"{service}.0.log").read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                event = json.loads(line)
                if event["event"] == "caught up":
                    seconds.append(event["seconds"])
        found[service] = statistics.median(seconds[-TIMES:])
    return found
