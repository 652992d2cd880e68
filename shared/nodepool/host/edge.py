"""What the programs at the edge share: agent, gateway and archiver, which work in sessions."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from nodepool.contract import metrics as contract
from nodepool.contract.metrics import Sample
from nodepool.host.foreign_logs import foreign_logs
from nodepool.host.health import HealthServer
from nodepool.host.logs import Logger, ServiceLog
from nodepool.host.page import MetricsPage
from nodepool.host.settings import Settings
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import (
    AccessError,
    ConnectionClosed,
    InDoubt,
    ServerRefusal,
    StreamChanged,
)
from nodepool.nats.wire.library import NatsError
from nodepool.state.back_off import pause_s

FAULTS: Final = (
    AccessError,
    ConnectionClosed,
    InDoubt,
    NatsError,
    OSError,
    ServerRefusal,
    StreamChanged,
)
"""The errors that end a session, but need not end the next session."""
BACK_OFF: Final = (0.1, 2.0)
"""The first and the longest pause between two sessions, in seconds."""


async def pause(failures: int, lasted_s: float) -> int:
    """Wait before the next session; return how many short sessions have ended in a row.

    failures: how many short sessions had ended in a row before the last session.
    lasted_s: how long the last session lasted. The pauses begin again after a long session.
    """
    failures = 1 if lasted_s > max(BACK_OFF) else failures + 1
    await asyncio.sleep(pause_s(failures, *BACK_OFF, random.random()))
    return failures


class EdgeTelemetry:
    """The log, the metrics and the health pages of one replica of a program at the edge.

    families: the families in which the replica counts.

    Raises SettingsError if the log file cannot be opened.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        samples: Callable[[], Iterable[Sample]],
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Open the log and make the page of metrics.

        name: the name of the program in logs and metrics.
        samples: returns what a scrape reads from the replica; called in another thread.
        labels: further labels of every series; by default only the name of the program.
        """
        self._settings = settings
        self._log = ServiceLog(name, settings)
        self._page = MetricsPage()
        self._pages: HealthServer | None = None
        self.families = self._page.add({contract.SERVICE_LABEL: name, **(labels or {})}, samples)
        self._reconnects = self.families.counter(contract.RECONNECTS)
        self._restarts = self.families.counter(contract.SESSION_RESTARTS)

    @property
    def log(self) -> Logger:
        """The logger for single lines."""
        return self._log.logger

    def log_connection(self, connection: Connection, **fields: str) -> None:
        """Log that a connection is open, and from now on each loss of it and each error on it."""
        log = self.log
        connection.on_disconnect.append(
            lambda: log.warning("lost connection", cause=connection.loss)
        )
        connection.on_error.append(lambda error: log.error("bus error", cause=str(error)))
        log.info("connected", server=connection.address, **fields)

    def count_reconnect(self) -> None:
        """Count and log a reconnect to the bus."""
        self._reconnects.inc()
        self.log.info("reconnected")

    def count_restart(self, cause: str) -> None:
        """Count and log that the replica starts to read the bus again."""
        self._restarts.inc()
        self.log.warning("session restarts", cause=cause)

    def serve(self, obstacle: Callable[[], str | None]) -> int:
        """Serve metrics and health pages; return the port, or -1 if the settings disable them."""
        if self._settings.metrics_port < 0:
            return -1
        self._pages = HealthServer(self._settings, self._page.pieces, obstacle)
        return self._pages.port

    @asynccontextmanager
    async def at_work(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Log what becomes of the work in the context, and close the telemetry at its end.

        Meanwhile the event loop and the pages watch each other; `stop` is set if either fails, and
        the error that has ended the pages is raised at the end.
        """
        watching = asyncio.create_task(self._watch(stop))
        try:
            with foreign_logs(lambda: self.log):
                yield
            if watching.done():
                watching.result()
        except Exception:  # A bug: the process ends, and its log says why.
            self.log.error("crashed", exc_info=True)
            raise
        finally:
            watching.cancel()
            self.close()

    async def _watch(self, stop: asyncio.Event) -> None:
        if self._pages is not None:
            await self._pages.watch(stop, self.log)

    def close(self) -> None:
        """Stop the pages, and close the log."""
        if self._pages is not None:
            self._pages.close()
        self._log.close()
