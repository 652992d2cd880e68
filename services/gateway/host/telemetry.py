"""Shows the work of the gateway: its log, its metrics and its health pages."""

from collections.abc import Callable, Iterable
from typing import Final, get_args

from gateway.refusals import Reason
from nodepool.contract import queries
from nodepool.contract.gateway_metrics import ANSWERED, QUERIES, SECONDS, STORED, TAKEN
from nodepool.contract.metrics import Sample
from nodepool.host.edge import EdgeTelemetry
from nodepool.host.settings import Settings

NAME: Final = "gateway"
"""The name of the gateway in logs, metrics and on the bus."""
COMMANDS: Final = "commands"
OBSERVATIONS: Final = "observations"
ASKED: Final = "queries"
"""The endpoints."""
UNKNOWN: Final = "unknown"


class Telemetry(EdgeTelemetry):
    """The telemetry of one replica.

    samples: returns what a scrape reads from the gateway; called in another thread.

    Raises SettingsError if the log file cannot be opened.
    """

    def __init__(self, settings: Settings, samples: Callable[[], Iterable[Sample]]) -> None:
        super().__init__(NAME, settings, samples)
        self._taken = self.families.counters(TAKEN)
        self._queries = self.families.counters(QUERIES)
        self._seconds = self.families.histograms(SECONDS)
        self._begin()

    def _begin(self) -> None:
        """Export each series at 0: Prometheus sees no increase when a series first appears.

        See https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics.
        """
        for reason in ("", *get_args(Reason)):
            for query in (*queries.QUERIES, UNKNOWN):
                self._queries[query, reason or ANSWERED].inc(0)
        for endpoint in (COMMANDS, OBSERVATIONS, ASKED):
            self._seconds[endpoint,]  # Creates the series.

    def begin_org(self, endpoint: str, org: str) -> None:
        """Export each series of an organisation that has been let in at 0."""
        for reason in ("", *get_args(Reason)) if endpoint != ASKED else ():
            self._taken[endpoint, org, reason or STORED].inc(0)

    def end_org(self, endpoint: str, org: str) -> None:
        """Export no series of an organisation that is gone any more."""
        for labels in [each for each in self._taken if each[:2] == (endpoint, org)]:
            self._taken.forget(labels)

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
