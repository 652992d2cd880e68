"""Changes of NodePools at an even pace, and when they are where."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.load import envelope
from bench.tabs import Change
from nodepool.contract.commands import ScaleNodePool
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.log.reader import Reader
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import connect

ORG: Final = "acme"
WINDOW: Final = 256
CHANGES_PER_S: Final = 50


@dataclass
class Changing:
    """Gives one NodePool after the other a target that is higher by one.

    hot: how many NodePools it changes. nodes: their first target.
    stored, modelled: when the log has had each command, and the read model its result.
    """

    url: str
    access: Access
    hot: int
    nodes: int
    stored: dict[Change, float] = field(default_factory=dict)
    modelled: dict[Change, float] = field(default_factory=dict)
    _count: int = 0

    async def __aenter__(self) -> None:
        self._connection = await connect(self.url, "bench", access=self.access)
        self._publisher = Publisher(self._connection, WINDOW)
        await self._publisher.open()
        self._objects = Reader(self._connection, "KV_nodepools", ["$KV.nodepools.>"], newest=True)
        await self._objects.open()
        self._watching = asyncio.create_task(self._watch())

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._objects.close()
        await self._connection.close()

    async def _watch(self) -> None:
        while True:
            for entry in await self._objects.next():
                document, now = json.loads(entry.content), time.monotonic()
                name, target = document["metadata"]["name"], document["spec"]["targetNodes"]
                self.modelled.setdefault((name, target), now)

    async def make(self, count: int) -> Sequence[Change]:
        """Make changes, evenly spread over the time; return them once the log has them."""
        began, made = time.monotonic(), list[Change]()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(began + number / CHANGES_PER_S - time.monotonic())
                name = f"pool-{self._count % self.hot:05d}"
                made.append((name, self.nodes + 1 + self._count // self.hot))
                self._count += 1
                group.create_task(self._scale(*made[-1]))
        return made

    async def _scale(self, name: str, target: int) -> None:
        command = ScaleNodePool(org=ORG, cluster="prod", pool=name, target_nodes=target)
        subject, content, id = envelope(command, f"s{name}-{target}")
        await self._publisher.publish(subject, content, {"Nats-Msg-Id": id})
        self.stored[name, target] = time.monotonic()
