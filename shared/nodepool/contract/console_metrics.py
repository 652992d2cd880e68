"""The metrics that only the console exports, beside those of each replica."""

from typing import Final

from nodepool.contract.metrics import QUICK, Metric

SESSIONS: Final = Metric(
    "nodepool_console_sessions",
    "gauge",
    "Users who are signed in.",
)
STREAMS: Final = Metric(
    "nodepool_console_streams",
    "gauge",
    "Open pages that are kept up to date.",
)
MIRRORS: Final = Metric(
    "nodepool_console_mirrors",
    "gauge",
    "Users whose organisation the console follows, so that its pages are at hand.",
)
PAGES: Final = Metric(
    "nodepool_console_page_seconds",
    "histogram",
    "Time to make a page, without the time to send it.",
    buckets=QUICK,
)
FRAMES: Final = Metric(
    "nodepool_console_frames_total",
    "counter",
    "Frames that were sent to open pages because something had changed.",
)
DROPPED: Final = Metric(
    "nodepool_console_dropped_streams_total",
    "counter",
    "Open pages that were let go of because they did not take their frames.",
)
ACTIONS: Final = Metric(
    "nodepool_console_actions_total",
    "counter",
    "Commands that users have sent from a page, by what became of them.",
    ("outcome",),
)
OF_THE_CONSOLE: Final[tuple[Metric, ...]] = tuple(
    value for value in vars().values() if isinstance(value, Metric)
)
"""All of them, in the order of this module."""
