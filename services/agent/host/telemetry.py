"""What the agent shows of its work: its log, its metrics and its health pages."""

import threading
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from agent.host.api import Counted
from nodepool.contract import metrics as contract
from nodepool.contract.agent_metrics import (
    ACTIONS,
    RECONCILE_SECONDS,
    REQUEST_SECONDS,
    REQUESTS,
)
from nodepool.contract.metrics import Sample
from nodepool.host.exposition import Wanted, compressed, written
from nodepool.host.families import Families
from nodepool.host.health import HealthServer
from nodepool.host.logs import Logger, ServiceLog
from nodepool.host.settings import Settings

NAME = "agent"
"""How the agent calls itself in logs, metrics and messages."""
PAGE_S = 8.0


class Telemetry:
    """The telemetry of one agent.

    samples: what a scrape reads from it, in a thread of its own.
    """

    def __init__(self, settings: Settings, samples: Callable[[], Iterable[Sample]]) -> None:
        self._settings = settings
        self._log = ServiceLog(NAME, settings)
        self._samples = samples
        self._registry = CollectorRegistry()
        families = Families(NAME, self._registry)
        self._requests = families.counters(REQUESTS)
        self._request = families.histograms(REQUEST_SECONDS)
        self._reconcile = families.histograms(RECONCILE_SECONDS)
        self._actions = families.counters(ACTIONS)
        self._reconnects = families.counter(contract.RECONNECTS)
        self._restarts = families.counter(contract.SESSION_RESTARTS)
        ProcessCollector(registry=self._registry)
        self._turn = threading.Lock()
        self._pages: HealthServer | None = None

    @property
    def log(self) -> Logger:
        """For single lines."""
        return self._log.logger

    def requested(self, request: Counted, seconds: float) -> None:
        """Counts a request to the API server."""
        self._requests[request.verb, request.resource, str(request.code)].inc()
        if request.verb != "watch":
            self._request[request.verb,].observe(seconds)

    def reconciled(self, kind: str, seconds: float) -> None:
        """Counts one comparison with what was then carried out."""
        self._reconcile[kind,].observe(seconds)

    def acted(self, action: str, result: str) -> None:
        """Counts an action."""
        self._actions[action, result].inc()

    def reconnected(self) -> None:
        """Counts a reconnect to the bus."""
        self._reconnects.inc()

    def restarted(self, cause: str) -> None:
        """Counts and logs that reading the bus begins anew."""
        self._restarts.inc()
        self.log.warning("session restarts", cause=cause)

    def serve(self, obstacle: Callable[[], str | None]) -> int:
        """Serves metrics and health pages; the port, -1 where the settings want none."""
        if self._settings.metrics_port < 0:
            return -1
        self._pages = HealthServer(self._settings, self._page, obstacle)
        return self._pages.port

    def _page(self, wants: Wanted) -> list[bytes] | None:
        if not self._turn.acquire(timeout=PAGE_S):
            return None
        try:
            generate = generate_openmetrics if wants.openmetrics else generate_latest
            pieces = written(self._samples(), NAME, openmetrics=wants.openmetrics)
            pieces.append(generate(self._registry))
            return compressed(pieces) if wants.gzip else pieces
        finally:
            self._turn.release()

    def close(self) -> None:
        """Stops serving, and closes the log."""
        if self._pages is not None:
            self._pages.close()
        self._log.close()
