"""Shows the work of the archiver: its log, its metrics and its health pages."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from nodepool.archive.manifests import Manifest
from nodepool.archive.storage.checking import Report
from nodepool.contract import metrics as contract
from nodepool.contract.archive_metrics import STORE_FAILURES
from nodepool.contract.metrics import Sample
from nodepool.host.health import HealthServer
from nodepool.host.logs import Logger, ServiceLog
from nodepool.host.page import MetricsPage
from nodepool.host.settings import Settings

NAME: Final = "archiver"
"""The name of the archiver in logs, metrics and on the bus."""


class Telemetry:
    """The telemetry of one archiver.

    samples: returns what a scrape reads from the archiver; called in another thread.

    Raises SettingsError if the log file cannot be opened.
    """

    def __init__(self, settings: Settings, samples: Callable[[], Iterable[Sample]]) -> None:
        self._settings = settings
        self._log = ServiceLog(NAME, settings)
        self._page = MetricsPage()
        families = self._page.add({contract.SERVICE_LABEL: NAME}, samples)
        self._failures = families.counter(STORE_FAILURES)
        self._reconnects = families.counter(contract.RECONNECTS)
        self._restarts = families.counter(contract.SESSION_RESTARTS)
        self._pages: HealthServer | None = None

    @property
    def log(self) -> Logger:
        """The logger for single lines."""
        return self._log.logger

    def count_failure(self, cause: str) -> None:
        """Count and log an attempt to use the store that has failed."""
        self._failures.inc()
        self.log.warning("store failed", cause=cause)

    def count_reconnect(self) -> None:
        """Count a reconnect to the bus."""
        self._reconnects.inc()
        self.log.info("reconnected")

    def count_restart(self, cause: str) -> None:
        """Count and log that the archiver starts to read the bus again."""
        self._restarts.inc()
        self.log.warning("session restarts", cause=cause)

    def note_segment(self, manifest: Manifest) -> None:
        """Log that a segment was stored."""
        shown = {"first": manifest.first, "last": manifest.last, "bytes": manifest.object.bytes}
        self.log.info("segment stored", **shown)

    def note_report(self, report: Report) -> None:
        """Log what was found when the whole archive was read back."""
        say = self.log.error if report.faults else self.log.info
        cause = {"cause": "; ".join(report.named)} if report.faults else {}
        say("archive read back", position=report.sound, faults=report.faults, **cause)

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
