"""The metrics that only the archiver exports, beside those of each replica."""

from typing import Final

from nodepool.contract.metrics import Metric

POSITION: Final = Metric(
    "nodepool_archive_position",
    "gauge",
    "Up to which position of the log the archive goes.",
)
READ_BACK: Final = Metric(
    "nodepool_archive_read_back_position",
    "gauge",
    "Up to which position the archive was read back, segment by segment, as it was stored.",
)
LAG_MESSAGES: Final = Metric(
    "nodepool_archive_lag_messages",
    "gauge",
    "Messages of the log that are not in the archive yet.",
)
LAG_SECONDS: Final = Metric(
    "nodepool_archive_lag_seconds",
    "gauge",
    "For how long the oldest message that is not archived has been in the log, or the log was not "
    "read.",
)
SEGMENTS: Final = Metric(
    "nodepool_archive_segments",
    "gauge",
    "Segments in the archive.",
)
BYTES: Final = Metric(
    "nodepool_archive_bytes",
    "gauge",
    "The size of all segments and snapshots in the archive.",
)
STORE_FAILURES: Final = Metric(
    "nodepool_archive_store_failures_total",
    "counter",
    "Attempts to use the store of the archive that failed; each is made again.",
)
SET_TIME: Final = Metric(
    "nodepool_archive_snapshot_set_timestamp_seconds",
    "gauge",
    "When the newest snapshot set was made, in seconds since 1970; 0 if this replica knows none.",
)
VERIFIED_TIME: Final = Metric(
    "nodepool_archive_verified_timestamp_seconds",
    "gauge",
    "When the whole archive was last read back, in seconds since 1970; 0 if not by this replica.",
)
FAULTS: Final = Metric(
    "nodepool_archive_faults",
    "gauge",
    "Faults that were found when the whole archive was last read back: 0 where it is whole.",
)
TRIMS: Final = Metric(
    "nodepool_trim_enabled",
    "gauge",
    "1 if this archiver trims the log.",
)
FLOOR: Final = Metric(
    "nodepool_trim_floor_position",
    "gauge",
    "The floor of the log: the first position that somebody needs.",
)
HOLDER: Final = Metric(
    "nodepool_trim_holder_position",
    "gauge",
    "The first position that a holder of the log needs: the archive, the snapshot sets, a service, "
    "or what is kept by age and by size.",
    ("holder",),
)
LOG_FIRST: Final = Metric(
    "nodepool_trim_log_first_position",
    "gauge",
    "The first position of the log: what lies before was trimmed.",
)
LOG_SIZE: Final = Metric(
    "nodepool_trim_log_bytes",
    "gauge",
    "The size of the messages of the log that are not trimmed.",
)
OF_THE_ARCHIVER: Final[tuple[Metric, ...]] = tuple(
    value for value in vars().values() if isinstance(value, Metric)
)
"""All of them, in the order of this module."""
