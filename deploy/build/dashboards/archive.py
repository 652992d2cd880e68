"""The archive: does it keep up with the log, is it whole, and how large is it?"""

from typing import Final

from dashboards.graphs import lines
from dashboards.page import Section
from dashboards.panels import ANY_IS_BAD, GREEN, RED, YELLOW, Query
from dashboards.queries import RATE, count, series
from dashboards.values import stat
from nodepool.contract import archive_metrics as archive

_NO_ARCHIVER: Final = "no archiver"

_BELOW: Final = f"max({series(archive.FLOOR)}) - max({series(archive.LOG_FIRST)})"

ARCHIVE: Final = Section(
    "Is the log archived?",
    [
        stat(
            "Faults of the archive",
            "Faults that were found when the whole archive was last read back.",
            f"max({series(archive.FAULTS)})",
            steps=ANY_IS_BAD,
            empty=_NO_ARCHIVER,
            width=4,
        ),
        stat(
            "Last read back",
            "For how long the whole archive was not read back.",
            f"time() - max({series(archive.VERIFIED_TIME)} > 0)",
            unit="dtdurations",
            empty="not yet",
            width=4,
            graph=False,
            decimals=None,
        ),
        stat(
            "Newest snapshot set",
            "How old the newest snapshots in the archive are, with which a service can begin.",
            f"time() - max({series(archive.SET_TIME)} > 0)",
            unit="dtdurations",
            empty="none",
            width=4,
            graph=False,
            decimals=None,
        ),
        stat(
            "Segments",
            "Segments in the archive.",
            f"max({series(archive.SEGMENTS)})",
            empty=_NO_ARCHIVER,
            width=4,
        ),
        stat(
            "Size of the archive",
            "The size of all segments and snapshots.",
            f"max({series(archive.BYTES)})",
            unit="bytes",
            empty=_NO_ARCHIVER,
            width=4,
        ),
        stat(
            "Store failures",
            "Attempts to use the store of the archive that failed, in the time shown.",
            count(archive.STORE_FAILURES),
            steps=((None, GREEN), (1, YELLOW)),
            empty=_NO_ARCHIVER,
            width=4,
        ),
        lines(
            "Archive behind",
            "For how long the oldest message has been in the log that is not in the archive. Under "
            "load it is up to ten minutes, as long as a segment is open.",
            [Query(f"min({series(archive.LAG_SECONDS)})", "oldest message")],
            unit="s",
            steps=((None, GREEN), (1_800, RED)),
            width=8,
            empty=_NO_ARCHIVER,
        ),
        lines(
            "Messages that are not archived",
            "Messages of the log that are not in the archive yet.",
            [Query(f"min({series(archive.LAG_MESSAGES)})", "messages")],
            width=8,
            decimals=0,
            empty=_NO_ARCHIVER,
        ),
        lines(
            "Archived and read back",
            "Positions of the log a second that are archived, and that were read back as they were "
            "stored.",
            [
                Query(f"max(deriv({series(archive.POSITION)}[{RATE}]))", "archived"),
                Query(f"max(deriv({series(archive.READ_BACK)}[{RATE}]))", "read back"),
            ],
            unit="cps",
            width=8,
            empty=_NO_ARCHIVER,
        ),
        lines(
            "Messages that each holder needs",
            "How many of the newest messages each holder of the log needs. The floor is where the "
            "one is that needs most.",
            [
                Query(
                    f"max({series(archive.POSITION)}) + 1"
                    f" - on () group_right () min by (holder) ({series(archive.HOLDER)})",
                    "{{holder}}",
                )
            ],
            width=8,
            decimals=0,
            empty=_NO_ARCHIVER,
        ),
        lines(
            "Messages below the floor",
            "Messages that nobody needs, and those that the archiver trims after ten minutes.",
            [
                Query(_BELOW, "nobody needs"),
                Query(f"({_BELOW}) * max({series(archive.TRIMS)})", "to be trimmed"),
            ],
            width=8,
            decimals=0,
            empty=_NO_ARCHIVER,
        ),
        lines(
            "Size of the log and of its archive",
            "The messages of the log that are not trimmed, and the segments and snapshots.",
            [
                Query(f"max({series(archive.LOG_SIZE)})", "log"),
                Query(f"max({series(archive.BYTES)})", "archive"),
            ],
            unit="bytes",
            width=8,
            empty=_NO_ARCHIVER,
        ),
    ],
)
