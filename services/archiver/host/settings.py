"""The settings of the archiver, read from the environment once."""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from archiver.closing import Limits
from nodepool.archive.floor import DELAY_S, KEEP_BYTES, KEEP_S, Keep
from nodepool.host.settings import PREFIX, Settings, SettingsError, read, read_switch

_NUMBER = re.compile("[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class ArchiverSettings:
    """The settings of one archiver.

    service: the settings that every service has.
    archive: where the archive is: a folder, or the URL of a bucket.
    segment_bytes, segment_seconds, quiet_seconds: when a segment is complete, as Limits has it.
    snapshot_hours: how often a snapshot set is made.
    verify_hours: how often the whole archive is read back.
    patience_seconds: how long the store may take for one object.
    trims: whether the log is trimmed at its floor.
    trim_keep_seconds, trim_keep_bytes: what of the log is kept at least, both at once.
    trim_delay_seconds: how long a floor is known before the log is trimmed there.
    """

    service: Settings
    archive: str
    segment_bytes: int = 64 << 20
    segment_seconds: int = 600
    quiet_seconds: int = 5
    snapshot_hours: int = 24
    verify_hours: int = 24
    patience_seconds: int = 60
    trims: bool = False
    trim_keep_seconds: int = KEEP_S
    trim_keep_bytes: int = KEEP_BYTES
    trim_delay_seconds: int = DELAY_S

    @property
    def limits(self) -> Limits:
        """When a segment is complete."""
        return Limits(self.segment_bytes, self.segment_seconds, self.quiet_seconds)

    @property
    def keep(self) -> Keep:
        """What of the log is kept at least."""
        return Keep(self.trim_keep_seconds, self.trim_keep_bytes)

    def list_settings(self) -> Mapping[str, object]:
        """Return every setting by its name, without secrets."""
        own = {name: value for name, value in asdict(self).items() if name != "service"}
        return {**self.service.list_settings(), **own}


BOUNDS = {
    "segment_bytes": 512 << 20,
    "segment_seconds": 86_400,
    "quiet_seconds": 3_600,
    "snapshot_hours": 8_760,
    "verify_hours": 8_760,
    "patience_seconds": 3_600,
    "trim_keep_seconds": 100 * 31_536_000,
    "trim_keep_bytes": 1 << 50,
    "trim_delay_seconds": 86_400,
}
"""The largest value of each number; the smallest is 1."""


def read_archiver(environment: Mapping[str, str] = os.environ) -> ArchiverSettings:
    """Return the settings from `NODEPOOL_*`.

    The numbers begin with `NODEPOOL_ARCHIVE_`, those about trimming with `NODEPOOL_TRIM_`.

    Raises SettingsError, which names the variable, if a variable is missing or cannot be used.
    """
    service = read(environment).of("archiver")
    archive = environment.get(f"{PREFIX}ARCHIVE", "")
    if not archive:
        text = "it names the place of the archive: a folder, or a URL such as s3://bucket/folder"
        raise SettingsError(f"{PREFIX}ARCHIVE is not set; {text}")
    given = {name: _number(environment, name) for name in BOUNDS}
    numbers = {name: number for name, number in given.items() if number is not None}
    return ArchiverSettings(service, archive, trims=read_switch(environment, "TRIM"), **numbers)


def variable_of(name: str) -> str:
    """Return the environment variable of a number."""
    return f"{PREFIX}{'' if name.startswith('trim_') else 'ARCHIVE_'}{name.upper()}"


def _number(environment: Mapping[str, str], name: str) -> int | None:
    variable = variable_of(name)
    value = environment.get(variable, "")
    if not value:
        return None
    if not _NUMBER.fullmatch(value) or not 1 <= int(value) <= BOUNDS[name]:
        raise SettingsError(f"{variable} is {value!r}; it must be from 1 to {BOUNDS[name]}")
    return int(value)
