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
    "Users whose organisation the console follows for their pages.",
)
PAGES: Final = Metric(
    "nodepool_console_page_seconds",
    "histogram",
    "Time to make a page, or the first part of a long one, without the time to send it.",
    buckets=QUICK,
)
FRAMES: Final = Metric(
    "nodepool_console_frames_total",
    "counter",
    "Frames sent to open pages after a change.",
)
DROPPED: Final = Metric(
    "nodepool_console_dropped_streams_total",
    "counter",
    "Streams of open pages that were closed because the browser took no frames.",
)
ACTIONS: Final = Metric(
    "nodepool_console_actions_total",
    "counter",
    "Forms that users sent, by outcome: done or refused.",
    ("outcome",),
)
OF_THE_CONSOLE: Final[tuple[Metric, ...]] = tuple(
    value for value in vars().values() if isinstance(value, Metric)
)
"""All metrics of the console, in the order of this module."""
