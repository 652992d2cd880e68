"""The settings of a service, read from the environment once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from nodepool.nats.addresses import address_fault, without_password

PREFIX = "NODEPOOL_"
Traces = Literal["off", "console", "otlp"]
Shown = Literal["hide", "show"]
Switch = Literal["off", "on"]


class SettingsError(Exception):
    """A setting that cannot be used; the message is one line that names it and the fix."""

    def __init__(self, message: str) -> None:
        # It quotes the environment, where a name or a value may hold anything.
        super().__init__(" ".join(message.split()))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one service; the variable of each is its name in capitals after `NODEPOOL_`.

    url: the NATS server, or several of one cluster with commas between.
    ca_file: the certificates to trust for `tls://` and `wss://`, as PEM; empty for the system's.
    metrics_host, metrics_port: where metrics and health are served; 0 is any free port, -1 none.
    log_level: debug, info, warning or error.
    log_file: where to write the log; empty for standard output.
    traces: where to send spans.
    replicas: how many copies of each stream the NATS servers keep.
    stop_with_parent: if not empty, the service stops when its standard input is closed.
    deprecated_conditions: whether status shows the conditions that others have replaced as well.
    answer_minutes: how many minutes a machine has to answer a cordon or a drain.
    registration_failed_event: whether `CWRegistrationFailedEvent` is said beside
        `CWNodeRegistrationFailed`.
    reserved_taint: whether Nodes in production have the taint of their reservation as well.
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
    answer_minutes: int = 30
    registration_failed_event: Switch = "off"
    reserved_taint: Switch = "off"
    ca_file: str = ""

    def shown(self) -> Mapping[str, str | int]:
        """Every setting by its name, without secrets."""
        values = {name: getattr(self, name) for name in Settings.__slots__}
        return {**values, "url": without_password(self.url)}


_INTEGER = re.compile("-?[0-9]{1,9}")
# Kubernetes sets variables for the Services beside a Pod, which begin with a Service's name, see
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables.
_SERVICE_LINK = re.compile(
    "[A-Z0-9_]+_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)=.*"
    "|[A-Z0-9_]+_PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?=.*"
    "|[A-Z0-9_]+_PORT=(tcp|udp|sctp)://.*"
)
_INTEGERS = {"metrics_port": (-1, 65535), "replicas": (1, 5), "answer_minutes": (1, 10_080)}
_CHOICES = {
    "traces": get_args(Traces),
    "log_level": ("debug", "info", "warning", "error"),
    "deprecated_conditions": get_args(Shown),
    "registration_failed_event": get_args(Switch),
    "reserved_taint": get_args(Switch),
}
OTHERS = frozenset({"ORG", "CLUSTER", "NATS_SERVER", "NATS_PORT", "DATA_DIR", "NODE"})
"""Settings of the command line and of `nodepool up`, which a service ignores; and the variable that
`nodepool run` sets for its program."""


def read(environment: Mapping[str, str]) -> Settings:
    """The settings in `NODEPOOL_*`; raises SettingsError for a wrong value or an unknown name."""
    values: dict[str, str | int] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        field = variable.removeprefix(PREFIX).lower()
        if field in Settings.__slots__ and not is_service_link(variable, value):
            values[field] = _value(variable, field, value)
    check_names(environment)
    return Settings(**values)  # type: ignore[arg-type]  # `_value` gives each field its type.


def check_names(environment: Mapping[str, str]) -> None:
    """Raises SettingsError for the first `NODEPOOL_*` variable that is no setting of anything."""
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in OTHERS or name.lower() in Settings.__slots__:
            continue
        if not is_service_link(variable, value):
            raise SettingsError(_unknown(variable))


def is_service_link(variable: str, value: str) -> bool:
    """Whether Kubernetes has set this variable for a Service, whatever it is called.

    One that is called `nodepool-metrics` gets a `NODEPOOL_METRICS_PORT`.
    """
    return _SERVICE_LINK.fullmatch(f"{variable}={value}") is not None


def _unknown(variable: str) -> str:
    from difflib import get_close_matches

    known = [*map(str.upper, Settings.__slots__), *sorted(OTHERS)]
    matches = get_close_matches(variable.removeprefix(PREFIX), known, n=1, cutoff=0.7)
    if matches:
        return f"{variable} is no setting; did you mean {PREFIX}{matches[0]}?"
    listed = ", ".join(f"{PREFIX}{name}" for name in known)
    return f"{variable} is no setting; the settings are {listed}"


def ca_file_fault(path: str) -> str | None:
    """Why a file holds no certificates to trust, as one clause; None for one that does, or ""."""
    if not path:
        return None
    import ssl

    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        return f"{path} holds no certificates; it must be a file of them in PEM"
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    return None


def _value(variable: str, field: str, value: str) -> str | int:
    if field in _INTEGERS:
        least, most = _INTEGERS[field]
        if not _INTEGER.fullmatch(value) or not least <= int(value) <= most:
            raise SettingsError(f"{variable} is {value!r}; it must be from {least} to {most}")
        return int(value)
    checks = {"url": address_fault, "ca_file": ca_file_fault}
    fault = checks[field](value) if field in checks else None
    if fault is not None:
        raise SettingsError(f"{variable}: {fault}")
    if field in _CHOICES and value not in _CHOICES[field]:
        raise SettingsError(f"{variable} is {value!r}; it must be {' or '.join(_CHOICES[field])}")
    return value
