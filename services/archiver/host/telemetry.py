"""Shows the work of the archiver: its log, its metrics and its health pages."""

from collections.abc import Callable, Iterable
from typing import Final

from nodepool.archive.manifests import Manifest
from nodepool.archive.storage.checking import Report
from nodepool.contract.archive_metrics import STORE_FAILURES
from nodepool.contract.metrics import Sample
from nodepool.host.edge import EdgeTelemetry
from nodepool.host.settings import Settings

NAME: Final = "archiver"
"""The name of the archiver in logs, metrics and on the bus."""


class Telemetry(EdgeTelemetry):
    """The telemetry of one archiver.

    samples: returns what a scrape reads from the archiver; called in another thread.

    Raises SettingsError if the log file cannot be opened.
    """

    def __init__(self, settings: Settings, samples: Callable[[], Iterable[Sample]]) -> None:
        super().__init__(NAME, settings, samples)
        self._failures = self.families.counter(STORE_FAILURES)

    def count_failure(self, cause: str) -> None:
        """Count and log an attempt to use the store that has failed."""
        self._failures.inc()
        self.log.warning("store failed", cause=cause)

    def note_segment(self, manifest: Manifest) -> None:
        """Log that a segment was stored."""
        shown = {"first": manifest.first, "last": manifest.last, "bytes": manifest.object.bytes}
        self.log.info("segment stored", **shown)

    def note_report(self, report: Report) -> None:
        """Log what was found when the whole archive was read back."""
        say = self.log.error if report.faults else self.log.info
        cause = {"cause": "; ".join(report.named)} if report.faults else {}
        say("archive read back", position=report.sound, faults=report.faults, **cause)
