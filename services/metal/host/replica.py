"""The replica for its driver: the state of the log, leadership, and how to store events."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from uuid import uuid4

from metal import Hears, Says
from metal.host.figures import Figures
from metal.machine import Machine
from metal.state import State
from nodepool.contract.keys import MachineKey
from nodepool.contract.messages import Event, wrap
from nodepool.contract.subjects import subject_of
from nodepool.engine.proposal import Proposal
from nodepool.host.logs import Logger
from nodepool.host.runtime import Runtime
from nodepool.nats.log.api import publish_event

Stored = Proposal[State, Hears]
"""A commit of this process that is stored."""


class MetalReplica:
    """The replica of `metal` in this process, as its driver sees it. figures: what it counts."""

    def __init__(self, runtime: Runtime[State, Hears, Says]) -> None:
        self._runtime = runtime
        self.figures = Figures(runtime.telemetry.metrics.families)

    @property
    def log(self) -> Logger:
        """The logger of the service."""
        return self._runtime.telemetry.log

    @property
    def is_ready(self) -> bool:
        """Whether the state of the replica is that of the log, or was a moment ago."""
        return self._runtime.ready.is_set()

    async def wait_ready(self, within_s: float) -> None:
        """Return once the replica is ready, or after `within_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._runtime.ready.wait()

    @property
    def is_leading(self) -> bool:
        """Whether this replica decides."""
        return self._runtime.is_leading

    @property
    def committed(self) -> int:
        """The position up to which the state is that of the log."""
        return self._runtime.replica.committed

    @property
    def state(self) -> State:
        """The state that follows from the log."""
        return self._runtime.replica.safe.state

    def machine(self, key: MachineKey) -> Machine:
        """Return a machine as the log has it."""
        return self.state.machines.get(key, Machine())

    def now(self) -> datetime:
        """Return the time of the log."""
        return self._runtime.log_time()

    async def say(self, event: Event) -> int:
        """Store an observation and return its position; raise an error of the bus."""
        envelope = wrap(event, id=uuid4().hex, source=event.speaker, time=datetime.now(UTC))
        subject = subject_of(event, event.speaker)
        return await publish_event(self._runtime.connection, subject, envelope.encode())
