"""What is done to a cluster of servers: a leader killed, restarts in turn, an empty disk."""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from bus.harness import until
from faults.cluster import SIZE, Cluster
from faults.copies import FAULTS, leader
from faults.processes import REPLICAS
from nodepool.contract.commands import SetQuota
from nodepool.contract.messages import envelope_of
from nodepool.contract.services import SERVICES
from nodepool.contract.subjects import subject_of
from nodepool.nats.log import api
from nodepool.nats.log.replicas import replicas_at_work
from nodepool.nats.log.streams import STREAM, streams
from nodepool.nats.wire.connection import Connection, connect
from support.constants import H100, ZONE

PATIENCE_S = 60.0
PAUSE_S = 0.02
PROBE_S = 0.5
"""How long one probe waits for its acknowledgement."""
TRIES = 3
"""How often an act is tried."""
Choice = Callable[[Connection], Awaitable[int]]
"""Chooses the number of the server to kill."""
OUTCOME = "np.evt.quota.probe._._.CommandAccepted"


@dataclass(frozen=True)
class Recovery:
    """How long after an act a publish was acknowledged, and its outcome came after that."""

    act: str
    bus_s: float
    services_s: float


@dataclass
class Maintenance:
    """Acts on a cluster under load, each once all copies are whole again, and what they took.

    soon_s: an act after which the services took as long as this is done again, TRIES times at most,
    and the best one counts: a machine that stalls says nothing of how quick they are.
    """

    soon_s: float
    recoveries: list[Recovery] = field(default_factory=list)
    _number: int = 0

    async def run(self, cluster: Cluster) -> None:
        """Kills the leader of the log, restarts each server, and wipes one.

        It begins once all services are at work: the first loss would show how long they take to
        start, not how long they take to go on.
        """
        connection = await connect(cluster.url, "maintenance", patience_s=PATIENCE_S)
        try:
            await _whole(connection)
            await until(lambda: _all_read(connection), PATIENCE_S)
            id = await self._stored(connection)
            await until(lambda: _is_processed(connection, id), PATIENCE_S)
            await self._act("leader killed", cluster, _leading, connection)
            for number in range(SIZE):
                await self._act("server restarted", cluster, partial(_itself, number), connection)
            new = (await _leading(connection) + 1) % SIZE
            await cluster.servers[new].kill()
            shutil.rmtree(cluster.stores[new])
            await cluster.servers[new].start()
            await _whole(connection)
            await self._act(
                "server killed beside the new one", cluster, partial(_beside, new), connection
            )
        finally:
            await connection.close()

    async def _act(
        self, act: str, cluster: Cluster, chosen: Choice, connection: Connection
    ) -> None:
        done: list[Recovery] = []
        while len(done) < TRIES and all(each.services_s >= self.soon_s for each in done):
            number = await chosen(connection)
            done.append(await self._recovered(act, cluster, number, connection))
        self.recoveries.append(min(done, key=lambda each: each.services_s))

    async def _recovered(
        self, act: str, cluster: Cluster, number: int, connection: Connection
    ) -> Recovery:
        clock = asyncio.get_running_loop().time
        began = clock()
        await cluster.servers[number].kill()
        id = await self._stored(connection)
        stored = clock()
        await until(lambda: _is_processed(connection, id), PATIENCE_S)
        done = clock()
        await cluster.servers[number].start()
        await _whole(connection)
        return Recovery(act, round(stored - began, 2), round(done - stored, 2))

    async def _stored(self, connection: Connection) -> str:
        """Publishes a command until it is acknowledged; its id."""
        self._number += 1
        id = f"probe-{self._number}"
        command = SetQuota(org="probe", zone=ZONE, instance_type=H100, limit=self._number)
        envelope = envelope_of(SetQuota).model_construct(
            id=id, type="SetQuota", source="probe", data=command
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await api.publish_event(
                        connection, subject_of(command, ""), envelope.encode(), timeout_s=PROBE_S
                    )
                    return id
                except FAULTS:
                    await asyncio.sleep(PAUSE_S)


async def _leading(connection: Connection) -> int:
    """The number of the server that leads the log, as soon as there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(*FAULTS):
                if (number := await leader(connection)) >= 0:
                    return number
            await asyncio.sleep(0.1)


async def _itself(number: int, _: Connection) -> int:
    return number


async def _beside(new: int, connection: Connection) -> int:
    return beside(new, await _leading(connection))


def beside(new: int, leader: int) -> int:
    """Which server to kill so that nothing is stored without the new one: the leader, if another.

    The log then goes on with the copy of the new server, and of one more.
    """
    return leader if leader != new else (new + 1) % SIZE


async def _all_read(connection: Connection) -> bool:
    """Whether both replicas of each service read the log."""
    try:
        at_work = await replicas_at_work(connection)
    except FAULTS:
        return False
    return at_work.total() == REPLICAS * len(SERVICES)


async def _is_processed(connection: Connection, id: str) -> bool:
    """Whether any copy of the log has the outcome of a command."""
    try:
        async with asyncio.timeout(PROBE_S):
            entry = await api.last_message(connection, STREAM, OUTCOME)
    except FAULTS:
        return False
    return entry is not None and bool(json.loads(entry.content)["correlationid"] == id)


async def _whole(connection: Connection) -> None:
    """Returns once every stream has its three copies, and each is current."""
    async with asyncio.timeout(PATIENCE_S):
        for name in streams(SIZE):
            while True:
                if await _is_whole(connection, name):
                    break
                await asyncio.sleep(0.1)


async def _is_whole(connection: Connection, stream: str) -> bool:
    try:
        info = await api.request(connection, f"$JS.API.STREAM.INFO.{stream}")
    except FAULTS:
        return False
    cluster = info.get("cluster")
    if not isinstance(cluster, dict) or not cluster.get("leader"):
        return False
    copies = cluster.get("replicas") or []
    return len(copies) == SIZE - 1 and all(
        each.get("current") and not each.get("offline") for each in copies
    )
