"""The page of metrics of a process: everything that its services count, and what their state shows.

Several services may run in one process. Each series names its service, so that the page has each
family once, with the series of all services.
"""

import threading
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import (
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from nodepool.contract.metrics import Sample
from nodepool.host.exposition import Wanted, compress_pieces, format_families
from nodepool.host.families import Families, Family

PAGE_S = 8.0
"""How long a page may wait for other pages, in seconds: less than the timeout of a scrape."""
Read = Callable[[], Iterable[Sample]]
"""Returns the samples that a scrape reads; called in the thread that serves the scrape."""


class MetricsPage:
    """The metrics of one process.

    registry: the counters, gauges and histograms, and the metrics of the process itself.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made: dict[str, Family] = {}
        self._sources: dict[tuple[str, ...], tuple[Mapping[str, str], Read]] = {}
        self._turn = threading.Lock()
        ProcessCollector(registry=self.registry)

    def add(self, labels: Mapping[str, str], read: Read) -> Families:
        """Add the samples of a service, and return the families in which it counts.

        labels: the labels of every series of the service, which come before a series' own. A
        service that was added before with the same labels is replaced, and goes on counting.
        """
        self._sources[tuple(labels.values())] = labels, read
        return Families(labels, self.registry, self._made)

    def pieces(self, wants: Wanted) -> list[bytes] | None:
        """Return the page in pieces; None if other pages take too long.

        Only one page is made at a time, whatever the number of scrapers.
        """
        if not self._turn.acquire(timeout=PAGE_S):
            return None
        try:
            generate = generate_openmetrics if wants.openmetrics else generate_latest
            sources = tuple((labels, read()) for labels, read in tuple(self._sources.values()))
            pieces = format_families(sources, openmetrics=wants.openmetrics)
            pieces.append(generate(self.registry))
            return compress_pieces(pieces) if wants.gzip else pieces
        finally:
            self._turn.release()
