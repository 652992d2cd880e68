"""What the environment may set, read once into a frozen value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

PREFIX = "NODEPOOL_"
Traces = Literal["off", "console", "otlp"]
Shown = Literal["hide", "show"]


class SettingsError(Exception):
    """A setting that cannot be used; the message is one line that names it and the fix."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one service.

    `metrics_port` 0 picks a free port, -1 serves none; `log_file` empty means standard output;
    `replicas` is how many copies the engine keeps of the streams; `deprecated_conditions` shows the
    three that others replaced as well.
    """

    url: str = "nats://127.0.0.1:4222"
    metrics_host: str = "127.0.0.1"
    metrics_port: int = -1
    log_level: str = "info"
    log_file: str = ""
    traces: Traces = "off"
    replicas: int = 1
    stop_with_parent: str = ""
    deprecated_conditions: Shown = "hide"


_INTEGER = re.compile("-?[0-9]{1,9}")
# Kubernetes tells every Pod of the Services beside it, in variables that begin with their names.
_SERVICE_LINK = re.compile(
    "[A-Z0-9_]+_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)=.*"
    "|[A-Z0-9_]+_PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?=.*"
    "|[A-Z0-9_]+_PORT=(tcp|udp|sctp)://.*"
)
_INTEGERS = {"metrics_port": (-1, 65535), "replicas": (1, 5)}
_CHOICES = {
    "traces": get_args(Traces),
    "log_level": ("debug", "info", "warning", "error"),
    "deprecated_conditions": get_args(Shown),
}
OTHERS = frozenset({"ORG", "CLUSTER", "NATS_SERVER", "NATS_PORT", "DATA_DIR"})
"""What the command line and the single-machine set-up read for themselves."""


def read(environment: Mapping[str, str]) -> Settings:
    """The settings in `NODEPOOL_*`; raises SettingsError for a wrong value or an unknown name."""
    found: dict[str, str | int] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX)
        field = name.lower()
        if field in Settings.__slots__:
            found[field] = _value(variable, field, value)
        elif name not in OTHERS and not _SERVICE_LINK.fullmatch(f"{name}={value}"):
            known = ", ".join(f"{PREFIX}{slot.upper()}" for slot in Settings.__slots__)
            raise SettingsError(f"{variable} is no setting; the settings are {known}")
    return Settings(**found)  # type: ignore[arg-type]  # `_value` gives each field its type.


def _value(variable: str, field: str, value: str) -> str | int:
    if field in _INTEGERS:
        least, most = _INTEGERS[field]
        if not _INTEGER.fullmatch(value) or not least <= int(value) <= most:
            raise SettingsError(f"{variable} is {value!r}; it must be from {least} to {most}")
        return int(value)
    if field in _CHOICES and value not in _CHOICES[field]:
        raise SettingsError(f"{variable} is {value!r}; it must be {' or '.join(_CHOICES[field])}")
    return value
