"""Makes the load: NodePools shrink and grow, each again as soon as it is at its target."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import aclosing
from random import Random

from nats.aio.client import Client

from bench.load import KIND, ZONE, envelope, pool, site
from faults.cell.bus import Message, Sender, follow
from nodepool.contract.commands import MACHINES_MAX, AddMachines, ScaleNodePool
from nodepool.contract.messages import Command

OF_POOL = 20
"""The most Nodes of a NodePool; they have half of it on average."""
BUSY_MAX = 250
"""How many NodePools change at once."""
LATE_S = 30.0
"""After how long a NodePool gets another target, even if it is not at its target."""
BULK = 100_000
"""The size of a large command, in bytes."""
STREAM = "KV_nodepools"


class Churn:
    """Some NodePools that change all the time.

    counts: the commands that were sent, and the NodePools that came to a target.
    """

    def __init__(self, seed: int, nodes: int) -> None:
        self._random = Random(seed)
        self._nodes = nodes
        self._targets = dict.fromkeys(range(max(1, 2 * nodes // OF_POOL)), 0)
        self._busy_max = min(BUSY_MAX, len(self._targets) // 2)
        self._busy: dict[int, float] = {}
        self._freed = asyncio.Event()
        self.commands = self.reached = self.large = 0

    def begin_anew(self) -> None:
        """Forget the changes in progress, before another loop changes the same NodePools."""
        self._busy.clear()
        self._freed = asyncio.Event()

    async def prepare(self, sender: Sender) -> None:
        """Create the cluster, its quota, its machines and its NodePools without Nodes, once."""
        if self.commands:
            return
        spare = self._nodes // 5 + OF_POOL
        machines = [
            AddMachines(zone=ZONE, instance_type=KIND, count=min(MACHINES_MAX, spare - first))
            for first in range(0, spare, MACHINES_MAX)
        ]
        commands: list[Command] = [*site(self._nodes + spare)[:2], *site(self._nodes)[2:]]
        for command in (*commands, *machines, *(pool(number, 0) for number in self._targets)):
            await self._send(sender, command)

    async def run(self, sender: Sender) -> None:
        """Change targets until cancelled, a bounded number at once."""
        clock = asyncio.get_running_loop().time
        while True:
            self._freed.clear()
            late = [each for each, since in self._busy.items() if clock() - since > LATE_S]
            for each in late:
                del self._busy[each]
            if len(self._busy) >= self._busy_max:
                try:
                    async with asyncio.timeout(1):
                        await self._freed.wait()
                except TimeoutError:
                    continue
            number = self._random.choice([each for each in self._targets if each not in self._busy])
            target = self._random.choice([n for n in range(OF_POOL) if n != self._targets[number]])
            self._targets[number], self._busy[number] = target, clock()
            path = pool(number, 0)
            await self._send(
                sender,
                ScaleNodePool(
                    org=path.org, cluster=path.cluster, pool=path.pool, target_nodes=target
                ),
            )

    async def watch(self, client: Client) -> None:
        """Read which NodePools are at their targets, until cancelled."""
        async with aclosing(follow(client, STREAM, "$KV.nodepools.>", 1)) as found:
            async for messages in found:
                for each in messages:
                    self._note(each)

    def _note(self, object: Message) -> None:
        number = int(object.subject.rpartition("-")[2])
        if number in self._busy and object.content and self._is_done(number, object.content):
            del self._busy[number]
            self.reached += 1
            self._freed.set()

    def _is_done(self, number: int, content: bytes) -> bool:
        document = json.loads(content)
        conditions = document["status"]["conditions"]
        reasons = {each["type"]: each["reason"] for each in conditions}
        is_wanted = document["spec"]["targetNodes"] == self._targets[number]
        return is_wanted and reasons.get("AtTarget") == "TargetMet"

    async def fill(self, sender: Sender, bytes_per_s: float) -> None:
        """Send large commands that change nothing, until cancelled."""
        for number in self._numbers():
            await asyncio.sleep(BULK / bytes_per_s)
            command = pool(number % len(self._targets), 0)
            command = command.model_copy(
                update={
                    "dry_run": True,
                    "metadata": command.metadata.model_copy(
                        update={"annotations": {"note": os.urandom(BULK // 2).hex()}}
                    ),
                }
            )
            await self._send(sender, command)
            self.large += 1

    def _numbers(self) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    async def _send(self, sender: Sender, command: Command) -> None:
        self.commands += 1
        subject, content, id = envelope(command, f"c{self.commands}")
        await sender.send(subject, content, id)
