"""Shows the work of the agent: its log, its metrics and its health pages."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, get_args

from agent.actions import Action, Place
from agent.host.work import KINDS
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
from nodepool.host.edge import EdgeTelemetry
from nodepool.host.settings import Settings
from nodepool.kube.api import Counted

if TYPE_CHECKING:
    from nodepool.host.exporting import Exporting

NAME = "agent"
"""The name of the agent in logs, metrics and messages."""


class Telemetry(EdgeTelemetry):
    """The telemetry of one agent.

    place: the cluster that the agent connects; every metric names it.
    samples: returns what a scrape reads from the agent; called in another thread.

    If traces are on, each command that the agent sends has a span, which begins a trace.

    Raises SettingsError if the log file cannot be opened, or a package for traces is missing.
    """

    def __init__(
        self, settings: Settings, place: Place, samples: Callable[[], Iterable[Sample]]
    ) -> None:
        labels = dict(zip(PLACE_LABELS, (place.org, place.cluster), strict=True))
        super().__init__(NAME, settings, samples, labels)
        families = self.families
        self._requests = families.counters(REQUESTS)
        self._request = families.histograms(REQUEST_SECONDS)
        self._reconcile = families.histograms(RECONCILE_SECONDS)
        self._actions = families.counters(ACTIONS)
        self._begin()
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

    def close(self) -> None:
        """Send the remaining spans, stop the pages, and close the log."""
        if self._exporting is not None:
            self._exporting.close()
        super().close()


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
