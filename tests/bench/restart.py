"""How long a control plane takes to work again after a restart, by how much its log holds."""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.load import Work, at_target, checked, drive, envelope, pool, prepare, site
from nodepool.nats.log.api import last_position
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import connect
from testbed.processes import ControlPlane

NODES = 10
"""How many Nodes each NodePool has."""
BATCH = 200
"""How many NodePools are created before the log is measured again."""
MESSAGES_A_POOL = 40
"""What one of them writes to the log at least, so that there are machines enough."""


class Restart(NamedTuple):
    """From the start of all processes until a new NodePool has all its verdicts, in seconds.

    messages: how many the log held.
    empty_s: with an almost empty log; most of it is the start of Python.
    full_s: with that log.
    """

    messages: int
    empty_s: float
    full_s: float


def restart(messages: int) -> Restart:
    """Measured with a log of at least so many messages, as the control plane itself writes them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ControlPlane(folder) as plane:
            uvloop.run(
                prepare(plane.server.url, site(NODES * (messages // MESSAGES_A_POOL + BATCH)))
            )
        empty_s = _restarted(folder, 0)
        with ControlPlane(folder) as plane:
            pools = 1
            while uvloop.run(_length(plane.server.url)) < messages:
                numbers = range(pools, pools + BATCH)
                wanted = [envelope(pool(number, NODES), f"c{number}") for number in numbers]
                work = Work(wanted, "nodepools", at_target)
                uvloop.run(drive(plane.server.url, work, BATCH))
                pools += BATCH
            length = uvloop.run(_length(plane.server.url))
        return Restart(length, empty_s, _restarted(folder, pools))


def _restarted(folder: Path, number: int) -> float:
    began = time.perf_counter()
    with ControlPlane(folder) as plane:
        command = envelope(pool(number, 0), f"r{number}")
        uvloop.run(drive(plane.server.url, Work([command], "nodepools", checked), 1))
        return time.perf_counter() - began


async def _length(url: str) -> int:
    connection = await connect(url, "bench")
    last = await last_position(connection, STREAM)
    await connection.close()
    return last
