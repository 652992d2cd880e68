"""The dashboard section of the console: its users, and whether its pages follow changes."""

from typing import Final

from dashboards.graphs import lines
from dashboards.page import Section
from dashboards.panels import Query
from dashboards.queries import RATE, quantile, rate, series
from nodepool.contract import console_metrics as console

_NOBODY: Final = "no open page"

CONSOLE: Final = Section(
    "Does the console follow?",
    [
        lines(
            "Users and open pages",
            "Users who are signed in, open pages that are kept up to date, and users whose "
            "organisation the console follows for their pages.",
            [
                Query(f"sum({series(console.SESSIONS)})", "signed in"),
                Query(f"sum({series(console.STREAMS)})", "open pages"),
                Query(f"sum({series(console.MIRRORS)})", "mirrors"),
            ],
            width=8,
            decimals=0,
            empty="no console",
        ),
        lines(
            "Time to make a page, 99 of 100",
            "Without the time to send it.",
            [Query(quantile(0.99, console.PAGES), "pages")],
            unit="s",
            log=True,
            width=8,
            empty=_NOBODY,
        ),
        lines(
            "Frames and actions",
            "Per second: frames sent to open pages, streams closed because the browser took no "
            "frames, and forms that users sent.",
            [
                Query(f"sum(rate({series(console.FRAMES)}[{RATE}]))", "frames"),
                Query(f"sum(rate({series(console.DROPPED)}[{RATE}]))", "closed streams"),
                Query(rate(console.ACTIONS, by="outcome"), "actions {{outcome}}"),
            ],
            unit="cps",
            width=8,
            empty=_NOBODY,
        ),
    ],
)
