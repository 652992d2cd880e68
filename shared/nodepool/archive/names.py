"""The names of the objects of an archive.

Names sort as the log does. The name of an object with data ends with the start of its SHA-256, so
there is one right content for each such name.
"""

import re
from datetime import date, datetime
from typing import Final

IDENTITY: Final = "log.json"
"""The object that says which log the archive holds, and where it begins."""
SEGMENTS: Final = "segments"
MANIFESTS: Final = "manifests"
SNAPSHOTS: Final = "snapshots"
SETS: Final = "sets"
"""The folders: of the segments, of their manifests, of parts of snapshots, and of snapshot sets."""
_MANIFEST: Final = re.compile(rf"{MANIFESTS}/([0-9]{{20}})\.json")
_SET: Final = re.compile(rf"{SETS}/([0-9]{{8}}T[0-9]{{2}}(?:[0-9]{{4}})?)\.json")
_DIGITS: Final = 16
"""How many digits of a SHA-256 a name has."""


def manifest_name(first: int) -> str:
    """Return the name of the manifest of the segment that begins at a position.

    Archivers that would go on after the same segment contend for one name, so only one of them
    succeeds, and the chain has no forks.
    """
    return f"{MANIFESTS}/{first:020}.json"


def first_position(name: str) -> int | None:
    """Return the position at which a manifest's segment begins; None for any other object."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def segment_name(day: date, first: int, last: int, sha256: str) -> str:
    """Return the name of a segment: of the messages of one day from `first` to `last`."""
    return f"{SEGMENTS}/day={day.isoformat()}/{first:020}-{last:020}-{sha256[:_DIGITS]}.parquet"


def other_name(name: str, number: int) -> str:
    """Return another name for the same content; the name itself for 0."""
    stem, dot, kind = name.rpartition(".")
    return f"{stem}~{number}{dot}{kind}" if number else name


def part_name(period: str, service: str, number: int, sha256: str) -> str:
    """Return the name of a part of the snapshot of a service."""
    return f"{SNAPSHOTS}/{period}/{service}-{number:04}-{sha256[:_DIGITS]}.zlib"


def set_name(period: str) -> str:
    """Return the name of the manifest of the snapshot set of a period."""
    return f"{SETS}/{period}.json"


def period_of_set(name: str) -> str | None:
    """Return the period of a snapshot set; None for any other object."""
    match = _SET.fullmatch(name)
    return match[1] if match else None


def period_of(time: datetime, hours: int) -> str:
    """Return the period of so many hours that a time belongs to, such as `20261128T00`.

    Periods are counted from the year 1, so all archivers with the same setting agree.
    """
    days, hour = time.date().toordinal(), time.hour
    began = (days * 24 + hour) // hours * hours
    return f"{date.fromordinal(began // 24):%Y%m%d}T{began % 24:02}"


def moment_of(time: datetime) -> str:
    """Return the period of a set that is made between two regular sets: `20261128T001530`."""
    return f"{time:%Y%m%dT%H%M%S}"
