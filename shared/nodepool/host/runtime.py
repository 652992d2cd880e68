"""A service on NATS: one replica, which works in one session after another until it is stopped.

Several replicas of a service may run; `nodepool.host.leadership` says which of them works.
Correctness does not depend on that, but on the condition of each commit.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from nodepool.engine.proposal import Proposal
from nodepool.engine.replica import Replica
from nodepool.host.batch_size import BatchSize
from nodepool.host.committing import BACK_OFF_S, Stale
from nodepool.host.doubts import Doubts
from nodepool.host.host import Host
from nodepool.host.opening import open_session
from nodepool.host.page import MetricsPage
from nodepool.host.reports import Reports
from nodepool.host.settings import Settings
from nodepool.host.snapshots import SNAPSHOT_AFTER, Snapshots
from nodepool.host.source import Progress, Source
from nodepool.host.telemetry import Telemetry
from nodepool.host.version import version_of
from nodepool.nats.log.feed import Feed
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import (
    AccessError,
    ConnectionClosed,
    InDoubt,
    LogChanged,
    ServerRefusal,
)
from nodepool.nats.wire.library import NatsError
from nodepool.nats.wire.waiting import cancel
from nodepool.service import I, O, S, Service
from nodepool.state.back_off import pause_s

if TYPE_CHECKING:
    from nodepool.host.session import ReplicaSession

FAULTS = (
    AccessError,
    Stale,
    InDoubt,
    LogChanged,
    ServerRefusal,
    ConnectionClosed,
    NatsError,
    OSError,
)
"""The errors that end a session, but may not end the next session."""
BACK_OFF_MAX_S = 2.0
"""The longest pause between two sessions; the first is BACK_OFF_S."""
STABLE_S = 10.0
"""After a session that lasted longer, the pauses start again with the first one."""

T = TypeVar("T")


class Runtime(Generic[S, I, O]):
    """One replica of a service on NATS.

    page, feed: what it shares with other services of its process: the page of metrics, and what
        reads the log. By default it shares neither.
    replica: the replica at work; a new one in every session.
    ready: set while it has caught up with the log.
    """

    def __init__(
        self,
        service: Service[S, I, O],
        settings: Settings,
        page: MetricsPage | None = None,
        *,
        feed: Feed | None = None,
        snapshot_after: int = SNAPSHOT_AFTER,
    ) -> None:
        self.service = service
        self.settings = settings
        self.replica: Replica[S, I, O] = Replica(service)
        self.telemetry = Telemetry(service, settings, self._source(), page)
        self.ready = asyncio.Event()
        self._fault = "starting"
        self._ended = ""
        self._behind_since = time.monotonic()
        is_ignored = settings.snapshots == "ignore"
        snapshots = Snapshots(snapshot_after, self.telemetry.log, ignored=is_ignored)
        self._host = Host(
            service, settings, self.telemetry, snapshots, self.ready, BatchSize(), Doubts(), feed
        )
        self._session: ReplicaSession[S, I, O] | None = None

    @property
    def on_stored(self) -> list[Callable[[Proposal[S, I]], None]]:
        """What is called with each commit of this process once it is known to be stored."""
        return self._host.on_stored

    def log_time(self) -> datetime:
        """Return the time of the log now, whatever the clock of this machine says."""
        return self._host.log_clock.now(asyncio.get_running_loop().time())

    @property
    def is_leading(self) -> bool:
        """Return whether the replica works, and has made the last commit of the service."""
        progress = self._progress()
        return self.ready.is_set() and progress is not None and progress.leading

    @property
    def connection(self) -> Connection:
        """Return the connection of the session; raise ConnectionClosed if there is none."""
        if self._session is None:
            raise ConnectionClosed(self._fault)
        return self._session.connection

    @property
    def committing(self) -> bool:
        """Return whether a commit is in flight."""
        return self._session is not None and self._session.committing.in_flight

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; an error of the bus only delays the service."""
        self.telemetry.log.info("started", version=version_of(), **self.settings.list_settings())
        saying = asyncio.create_task(self._say_when_stopping(stop))
        failures, clock = 0, asyncio.get_running_loop().time
        try:
            while not stop.is_set():
                began = clock()
                try:
                    await self._run_session(stop)
                except FAULTS as error:
                    self._fault = self._ended = str(error) or type(error).__name__
                    is_error = isinstance(error, LogChanged)
                    self.telemetry.count_restart(self._fault, is_error=is_error)
                    failures = failures + 1 if clock() - began < STABLE_S else 1
                    pause = pause_s(failures, BACK_OFF_S, BACK_OFF_MAX_S, random.random())
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await stop.wait()
        except Exception:  # A bug ends the service, and its log says why.
            self.telemetry.log.error("crashed", exc_info=True)
            raise
        finally:
            saying.cancel()
            self.telemetry.close()

    def is_ready(self) -> bool:
        """Return whether the replica has caught up with the log, is connected, and can commit."""
        return self.obstacle() is None

    def obstacle(self) -> str | None:
        """Return why the replica is not ready, as one line; None if it is ready."""
        session = self._session
        return self._fault if session is None else session.obstacle

    # The values that a scrape reads, in its own thread: a session may end meanwhile.

    def _source(self) -> Source:
        service = self.service
        return Source(
            self._progress,
            self.is_ready,
            self._oldest_input_age,
            lambda: None if (session := self._session) is None else session.lag,
            # A proposal that is not stored may be undone, but no counter may go back.
            lambda: service.samples(self.replica.safe.state),
            version_of(),
        )

    def _progress(self) -> Progress | None:
        session = self._session
        return None if session is None else session.progress

    def _oldest_input_age(self) -> float:
        """Return the age in seconds; if no session knows it, the time since no input was open."""
        session = self._session
        age = None if session is None else session.oldest_input_age
        return time.monotonic() - self._behind_since if age is None else age

    async def _say_when_stopping(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.telemetry.log.info("stopping")

    async def _run_session(self, stop: asyncio.Event) -> None:
        connection = await _unless(stop, self._open_connection())
        if connection is None:
            return
        reports = Reports(connection, self.telemetry)
        try:
            async with AsyncExitStack() as stack:
                opening = open_session(self._host, connection, self._note_wait)
                session = await _unless(stop, stack.enter_async_context(opening))
                if session is None:
                    return
                self._session, self.replica, self._ended = session, session.replica, ""
                await session.run(stop)
        finally:
            self._behind_since = time.monotonic() - self._oldest_input_age()
            self._session = None
            reports.end()
            with suppress(NatsError, OSError):
                await connection.close()

    async def _open_connection(self) -> Connection:
        """Return a connection as soon as a server is reachable."""
        settings = self.settings
        connection = await connect(
            settings.url,
            self.service.name,
            patience_s=None,
            access=settings.access,
            on_fault=self._note_fault,
        )
        self.telemetry.log.info("connected", server=connection.address)
        self._fault = self._ended or "reading the newest snapshot"
        return connection

    def _note_wait(self, reason: str) -> None:
        self._fault = reason
        self.telemetry.log.warning("not provisioned", cause=reason)

    def _note_fault(self, fault: str) -> None:
        self._fault = fault
        self.telemetry.log.warning("cannot connect", cause=fault)


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, T]) -> T | None:
    """Return the result of `work`; cancel `work` and return None if `stop` is set first."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        stopping.cancel()
        await cancel(working)
