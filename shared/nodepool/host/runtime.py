"""A service on NATS: one replica, at work in one session after another until it is stopped.

Several replicas of a service may run; `nodepool.host.leadership` says which of them works. For
correctness that does not matter: the condition of each commit does.
"""

import asyncio
from contextlib import suppress
from typing import Generic

from nats.errors import Error as NatsError

from nodepool.engine.replica import Replica
from nodepool.host.committing import BACK_OFF_S, Stale
from nodepool.host.metrics import Progress, Source
from nodepool.host.session import Host, Session, open_session
from nodepool.host.settings import Settings
from nodepool.host.snapshots import SNAPSHOT_AFTER, Snapshots
from nodepool.host.telemetry import Telemetry
from nodepool.nats.connection import Connection, connect
from nodepool.nats.errors import InDoubt, LogChanged, ServerRefusal, Unreachable
from nodepool.service import I, O, S, Service


class Runtime(Generic[S, I, O]):
    """One replica of a service on NATS.

    replica: the replica at work; a new one in every session.
    ready: set while it has caught up with the log.
    port: where metrics and health are served; -1 where they are not.
    """

    def __init__(
        self,
        service: Service[S, I, O],
        settings: Settings,
        *,
        snapshot_after: int = SNAPSHOT_AFTER,
    ) -> None:
        self.service = service
        self.settings = settings
        self.replica: Replica[S, I, O] = Replica(service)
        source = Source(self._progress, lambda: service.gauges(self.replica.state))
        self.telemetry = Telemetry(service, settings, source)
        self.ready = asyncio.Event()
        self.port = -1
        snapshots = Snapshots(snapshot_after, self.telemetry.log)
        self._host = Host(service, settings, self.telemetry, snapshots, self.ready)
        self._session: Session[S, I, O] | None = None

    @property
    def committing(self) -> bool:
        """Whether a commit is on its way."""
        return self._session is not None and self._session.committing.in_flight

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set; an error of the bus only delays it.

        Raises SettingsError where metrics cannot be served.
        """
        self.port = self.telemetry.serve(self.is_ready)
        try:
            while not stop.is_set():
                try:
                    await self._run_session(stop)
                except LogChanged as change:
                    self.telemetry.log.error("log changed", cause=str(change))
                    await asyncio.sleep(BACK_OFF_S)
                except (Stale, InDoubt, ServerRefusal, Unreachable, NatsError, OSError) as error:
                    self.telemetry.log.warning("session restarts", cause=str(error))
                    await asyncio.sleep(BACK_OFF_S)
        finally:
            self.telemetry.close()

    def is_ready(self) -> bool:
        """Whether it has caught up with the log and is connected."""
        session = self._session
        return self.ready.is_set() and session is not None and session.connection.is_connected

    def _progress(self) -> Progress | None:
        return None if self._session is None else self._session.progress

    async def _run_session(self, stop: asyncio.Event) -> None:
        connection = await _connected(self.settings.url, self.service.name, stop)
        if connection is None:
            return
        connection.on_error.append(self._log_bus_error)
        connection.on_reconnect.append(self.telemetry.metrics.reconnected)
        try:
            async with open_session(self._host, connection) as session:
                self._session, self.replica = session, session.replica
                await session.run(stop)
        finally:
            with suppress(NatsError, OSError):
                await connection.close()

    def _log_bus_error(self, error: Exception) -> None:
        self.telemetry.log.error("bus error", cause=str(error))


async def _connected(url: str, name: str, stop: asyncio.Event) -> Connection | None:
    """A connection as soon as there is a server; None where `stop` came first."""
    connecting = asyncio.create_task(connect(url, name, patience_s=None))
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if connecting in done:
        return connecting.result()
    connecting.cancel()
    return None
