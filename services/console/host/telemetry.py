"""Shows the work of the console: its log, its metrics and its health pages."""

from collections.abc import Callable, Iterable
from typing import Final

from nodepool.contract.console_metrics import ACTIONS, DROPPED, FRAMES, PAGES
from nodepool.contract.metrics import Sample
from nodepool.host.edge import EdgeTelemetry
from nodepool.host.settings import Settings

NAME: Final = "console"
"""The name of the console in logs, metrics and on the bus."""
DONE, REFUSED = "done", "refused"


class Telemetry(EdgeTelemetry):
    """The telemetry of one console.

    samples: returns what a scrape reads from the console; called in another thread.

    Raises SettingsError if the log file cannot be opened.
    """

    def __init__(self, settings: Settings, samples: Callable[[], Iterable[Sample]]) -> None:
        super().__init__(NAME, settings, samples)
        self._made = self.families.histogram(PAGES)
        self._frames = self.families.counter(FRAMES)
        self._dropped = self.families.counter(DROPPED)
        self._actions = self.families.counters(ACTIONS)
        for outcome in (DONE, REFUSED):
            self._actions[outcome,].inc(0)

    def note_page(self, seconds: float) -> None:
        """Count a page and the time to make it."""
        self._made.observe(seconds)

    def count_frame(self) -> None:
        """Count a frame that was sent to an open page."""
        self._frames.inc()

    def count_dropped(self) -> None:
        """Count and log an open page that has not taken its frames."""
        self._dropped.inc()
        self.log.warning("dropped a page that takes no frames")

    def note_action(self, action: str, user: str, fault: str) -> None:
        """Count and log what a user has done; `fault` says why it was refused."""
        self._actions[REFUSED if fault else DONE,].inc()
        cause = {"cause": fault} if fault else {}
        self.log.info("action", action=action, user=user, **cause)
