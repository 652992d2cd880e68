"""Shows the work of the gateway: its log, its metrics and its health pages."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, get_args

from gateway.refusals import Reason
from nodepool.contract import metrics as contract
from nodepool.contract import queries
from nodepool.contract.gateway_metrics import ANSWERED, QUERIES, SECONDS, STORED, TAKEN
from nodepool.contract.metrics import Sample
from nodepool.host.health import HealthServer
from nodepool.host.logs import Logger, ServiceLog
from nodepool.host.page import MetricsPage
from nodepool.host.settings import Settings

NAME: Final = "gateway"
"""The name of the gateway in logs, metrics and on the bus."""
COMMANDS: Final = "commands"
OBSERVATIONS: Final = "observations"
ASKED: Final = "queries"
"""The endpoints."""
UNKNOWN: Final = "unknown"


class Telemetry:
    """The telemetry of one replica.

    samples: returns what a scrape reads from the gateway; called in another thread.

    Raises SettingsError if the log file cannot be opened.
    """

    def __init__(self, settings: Settings, samples: Callable[[], Iterable[Sample]]) -> None:
        self._settings = settings
        self._log = ServiceLog(NAME, settings)
        self._page = MetricsPage()
        families = self._page.add({contract.SERVICE_LABEL: NAME}, samples)
        self._taken = families.counters(TAKEN)
        self._queries = families.counters(QUERIES)
        self._seconds = families.histograms(SECONDS)
        self._reconnects = families.counter(contract.RECONNECTS)
        self._restarts = families.counter(contract.SESSION_RESTARTS)
        self._begin()
        self._pages: HealthServer | None = None

    def _begin(self) -> None:
        """Export each series at 0: Prometheus sees no increase when a series first appears.

        See https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics.
        """
        for reason in ("", *get_args(Reason)):
            for query in (*queries.QUERIES, UNKNOWN):
                self._queries[query, reason or ANSWERED].inc(0)
        for endpoint in (COMMANDS, OBSERVATIONS, ASKED):
            self._seconds[endpoint,]  # Creates the series.

    @property
    def log(self) -> Logger:
        """The logger for single lines."""
        return self._log.logger

    def begin_org(self, endpoint: str, org: str) -> None:
        """Export each series of an organisation that has been let in at 0."""
        for reason in ("", *get_args(Reason)) if endpoint != ASKED else ():
            self._taken[endpoint, org, reason or STORED].inc(0)

    def count(self, endpoint: str, org: str, subject: str, refused: str, seconds: float) -> None:
        """Count a message or query that was done, or refused for a reason."""
        if endpoint != ASKED:
            self._taken[endpoint, org, refused or STORED].inc()
            self._seconds[endpoint,].observe(seconds)
            return
        name = subject.rpartition(".")[2]
        self._queries[name if name in queries.QUERIES else UNKNOWN, refused or ANSWERED].inc()
        if name != queries.Watch.__name__:
            self._seconds[endpoint,].observe(seconds)

    def count_reconnect(self) -> None:
        """Count a reconnect to the bus."""
        self._reconnects.inc()

    def count_restart(self, cause: str) -> None:
        """Count and log that the gateway starts to read the bus again."""
        self._restarts.inc()
        self.log.warning("session restarts", cause=cause)

    def serve(self, obstacle: Callable[[], str | None]) -> int:
        """Serve metrics and health pages; return the port, or -1 if the settings disable them."""
        if self._settings.metrics_port < 0:
            return -1
        self._pages = HealthServer(self._settings, self._page.pieces, obstacle)
        return self._pages.port

    async def watch(self, stop: asyncio.Event) -> None:
        """Let the event loop and the pages watch each other; set `stop` if either fails."""
        if self._pages is not None:
            await self._pages.watch(stop, self.log)

    def close(self) -> None:
        """Stop the pages, and close the log."""
        if self._pages is not None:
            self._pages.close()
        self._log.close()
