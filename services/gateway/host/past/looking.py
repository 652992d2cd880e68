"""Looks at the past in a process of its own, one job after the other, within bounds.

The first line of standard input says where bus and archive are; each further line is a job. The
reply to a job is a frame with the moment or with a fault, then frames with what was asked for.
"""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from importlib import import_module
from typing import Final

from gateway.host.past.commands import read_commands
from gateway.host.past.events import read_events, read_messages
from gateway.host.past.frames import BYTE_ORDER, LENGTH_BYTES, Limits
from gateway.host.past.objects import kept_objects
from gateway.host.past.zones import find_zones
from nodepool.client import Client
from nodepool.client.errors import ClientError, Unreachable
from nodepool.client.past.backend import PastBackend
from nodepool.client.past.errors import NoMoment
from nodepool.client.past.history import History
from nodepool.client.past.objects import PastObjects
from nodepool.client.past.replicas import replica_at
from nodepool.client.past.session import PROJECTED, PastSession
from nodepool.contract.queries import Audit, Events, FindCapacity, Messages, Query, query_in
from nodepool.engine.past import state_of
from nodepool.nats.wire.access import Access

NICE: Final = 10
"""The process gives way to the gateway."""
FAULTS: Final[dict[type[BaseException], str]] = {NoMoment: "moment", Unreachable: "unreachable"}


def main() -> None:
    """Do one job after the other until standard input ends."""
    given = json.loads(sys.stdin.buffer.readline())
    limits = Limits(**given["limits"])
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
    os.nice(NICE)
    asyncio.run(_serve(Looker(**given["looker"]), limits))


async def _serve(looker: "Looker", limits: Limits) -> None:
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        signal.alarm(limits.job_s)  # Ends the process if it is not reset in time.
        try:
            async with aclosing(looker.look(**json.loads(line))) as frames:
                async for frame in frames:
                    _write(frame)
        except (ClientError, MemoryError) as error:
            kind = next((name for of, name in FAULTS.items() if isinstance(error, of)), "fault")
            kind = "memory" if isinstance(error, MemoryError) else kind
            _write(json.dumps({"fault": kind, "error": str(error)}).encode())
        _write(b"")
        sys.stdout.buffer.flush()
        signal.alarm(0)


def _write(frame: bytes) -> None:
    sys.stdout.buffer.write(len(frame).to_bytes(LENGTH_BYTES, BYTE_ORDER) + frame)


class Looker:
    """Looks at the past; it keeps the objects of the last moment, of which more is often asked."""

    def __init__(self, url: str, archive: str, access: dict[str, str]) -> None:
        self._url, self._archive, self._access = url, archive, Access(**access)
        self._last: tuple[int, PastObjects] | None = None

    async def look(
        self, org: str, at: int | str, name: str, query: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield the moment, and what a query asks for about an organisation.

        name, query: the query as it was sent to the gateway.
        """
        asked = query_in(name, query.encode())
        assert isinstance(asked, Query), "the gateway has read it"
        moment = at if isinstance(at, int) else datetime.fromisoformat(at)
        client = Client(
            self._url, org=org, source="gateway-past", access=self._access, through="bus"
        )
        session = PastSession(client.session, moment, self._archive)
        await session.open()
        try:
            history = session.history
            assert history is not None, "the session is open"
            history.uses_snapshots = False  # The gateway has no right to those on the bus.
            about = {"position": history.position, "time": history.time.isoformat()}
            yield json.dumps(about).encode()
            match asked:
                case Events():
                    yield await read_events(history, asked, org)
                case Messages():
                    yield await read_messages(history, asked, org)
                case FindCapacity():
                    self._last = None  # Its memory is needed for the zones.
                    yield await find_zones(history, asked, org)
                case Audit():
                    backend = PastBackend(org, asked.cluster)
                    backend.show(history, lambda: self._objects(history))
                    yield await read_commands(history, asked, org, backend)
                case _ if name != "Moment":
                    for kept in kept_objects(await self._objects(history), org):
                        yield kept.frame()
        finally:
            await session.close()

    async def _objects(self, history: History) -> PastObjects:
        if self._last is None or self._last[0] != history.position:
            self._last = None
            service = import_module(f"{PROJECTED}.decide").SERVICE
            state = state_of(await replica_at(history, service))
            objects = PastObjects(service.projection, state, history.extent.log, history.position)
            self._last = history.position, objects
        return self._last[1]
