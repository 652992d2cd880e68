"""Faults drawn from a seed: services and servers are stopped, continued, killed and started."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

from faults.processes import Process

PAUSES_S = (0.2, 0.5, 1.0, 2.0)
"""How long nothing new goes wrong."""
STOPS_S = (0.05, 0.3, 1.0, 3.0, 7.0)
"""How long a process is stopped."""
DOWN_S = (0.0, 0.2, 1.0, 4.0)
"""How long a process that was killed stays down."""
SERVER_SHARE = 0.25
"""How many of the faults are of servers."""


class Chaos:
    """What goes wrong; a second fault may begin before the first is over.

    counts: how often each kind of fault has happened.
    """

    def __init__(self, seed: int, services: Sequence[Process], servers: Sequence[Process]) -> None:
        self._random = Random(seed)
        self._services = services
        self._servers = servers
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Lets things go wrong until it is cancelled; what it has begun ends by itself."""
        async with asyncio.TaskGroup() as faults:
            while True:
                await asyncio.sleep(self._random.choice(PAUSES_S))
                of_servers = self._random.random() < SERVER_SHARE
                process = self._random.choice(self._servers if of_servers else self._services)
                is_kill = self._random.random() < 0.5
                for_s = self._random.choice(DOWN_S if is_kill else STOPS_S)
                if process.is_running and not process.is_stopped:
                    kind = "server" if of_servers else "service"
                    self.counts[f"{kind} {'killed' if is_kill else 'stopped'}"] += 1
                    faults.create_task(_down(process, is_kill=is_kill, for_s=for_s))


async def _down(process: Process, *, is_kill: bool, for_s: float) -> None:
    if is_kill:
        await process.kill()
        await asyncio.sleep(for_s)
        await process.start()
    else:
        process.stop()
        await asyncio.sleep(for_s)
        process.go_on()
