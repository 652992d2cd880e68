"""Shows the work of the agent: its log, its metrics and its health pages."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, get_args

from agent.actions import Action, Place
from agent.host.work import KINDS
from nodepool.contract import metrics as contract
from nodepool.contract.agent_metrics import (
    ACTIONS,
    FAILED,
    PLACE_LABELS,
    RECONCILE_SECONDS,
    REFUSED,
    REQUEST_SECONDS,
    REQUESTS,
)
from nodepool.contract.metrics import Sample
from nodepool.host.health import HealthServer
from nodepool.host.logs import Logger, ServiceLog
from nodepool.host.page import MetricsPage
from nodepool.host.settings import Settings
from nodepool.kube.api import Counted

if TYPE_CHECKING:
    from nodepool.host.exporting import Exporting

NAME = "agent"
"""The name of the agent in logs, metrics and messages."""


class Telemetry:
    """The telemetry of one agent.

    place: the cluster that the agent connects; every metric names it.
    samples: returns what a scrape reads from the agent; called in another thread.

    If traces are on, each command that the agent sends has a span, which begins a trace.

    Raises SettingsError if the log file cannot be opened, or a package for traces is missing.
    """

    def __init__(
        self, settings: Settings, place: Place, samples: Callable[[], Iterable[Sample]]
    ) -> None:
        self._settings = settings
        self._log = ServiceLog(NAME, settings)
        self._page = MetricsPage()
        values = (NAME, place.org, place.cluster)
        labels = dict(zip((contract.SERVICE_LABEL, *PLACE_LABELS), values, strict=True))
        families = self._page.add(labels, samples)
        self._requests = families.counters(REQUESTS)
        self._request = families.histograms(REQUEST_SECONDS)
        self._reconcile = families.histograms(RECONCILE_SECONDS)
        self._actions = families.counters(ACTIONS)
        self._reconnects = families.counter(contract.RECONNECTS)
        self._restarts = families.counter(contract.SESSION_RESTARTS)
        self._begin()
        self._pages: HealthServer | None = None
        self._exporting = _exporting(settings)

    def _begin(self) -> None:
        """Export each series at 0: Prometheus sees no increase when a series first appears.

        See https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics.
        """
        for kind in KINDS:
            self._reconcile[kind,]  # Creates the series.
        for action in get_args(Action):
            for result in (FAILED, REFUSED):
                self._actions[action.__name__, result].inc(0)

    @property
    def log(self) -> Logger:
        """The logger for single lines."""
        return self._log.logger

    def count_request(self, request: Counted, seconds: float) -> None:
        """Count a request to the API server."""
        self._requests[request.verb, request.resource, str(request.code)].inc()
        if request.verb != "watch":
            self._request[request.verb,].observe(seconds)

    def count_comparison(self, kind: str, seconds: float) -> None:
        """Count a comparison, with the seconds that it and its actions took."""
        self._reconcile[kind,].observe(seconds)

    def count_action(self, action: str, result: str) -> None:
        """Count an action."""
        self._actions[action, result].inc()

    def count_reconnect(self) -> None:
        """Count a reconnect to the bus."""
        self._reconnects.inc()

    def count_restart(self, cause: str) -> None:
        """Count and log that the agent starts to read the bus again."""
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
        """Stop the pages, send the remaining spans, and close the log."""
        if self._pages is not None:
            self._pages.close()
        if self._exporting is not None:
            self._exporting.close()
        self._log.close()


def _exporting(settings: Settings) -> "Exporting | None":
    """Return the exporter of the spans that the client makes of commands; None without traces."""
    if settings.traces == "off":
        return None
    # The packages for spans take a tenth of a second to load.
    from opentelemetry import trace

    from nodepool.host.exporting import Exporting

    exporting = Exporting(NAME, settings.traces)
    trace.set_tracer_provider(exporting.provider)
    return exporting
