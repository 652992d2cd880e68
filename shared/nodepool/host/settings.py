"""The settings of a service, read from the environment once."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

from nodepool.host.protection import Protection
from nodepool.nats.wire.access import NO_ACCESS, PLACEHOLDER, Access, check_address
from nodepool.nats.wire.addresses import address_fault, split_addresses, without_password
from nodepool.nats.wire.errors import AccessError

PREFIX = "NODEPOOL_"
Traces = Literal["off", "console", "otlp"]
Shown = Literal["hide", "show"]
Switch = Literal["off", "on"]
Use = Literal["use", "ignore"]


class SettingsError(Exception):
    """A setting that cannot be used; the message is one line that names it and the fix."""

    def __init__(self, message: str) -> None:
        # The message quotes the environment, whose names and values may contain anything.
        super().__init__(" ".join(message.split()))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one service; the variable of each is its name in capitals after `NODEPOOL_`.

    url: the NATS server, or several of one cluster with commas between.
    access: whom to trust, what to show, and where replies go; each of its fields is a setting, and
        `{service}` in what a service shows, or in the prefix of its replies, stands for its name.
    metrics_host, metrics_port: where metrics and health are served; 0 is any free port, -1 none.
    metrics_cert_file, metrics_key_file, metrics_token_file: the files that protect metrics.
    hang_seconds: how long the event loop may take for one turn until `/livez` says that it hangs.
    log_level: debug, info, warning or error.
    log_file: where to write the log; empty for standard output. `{service}` stands for the name of
        the service, so that the services of one process have a file each.
    traces: where to send spans.
    replicas: how many copies of each stream the NATS servers keep.
    snapshots: whether it begins at its newest snapshot, or at the start of the log.
    max_file_store: how many bytes each server may store, for metrics; 0 where that is not known.
    stop_with_parent: if not empty, the service stops when its standard input is closed.
    deprecated_conditions: whether status shows the conditions that others have replaced as well.
    answer_minutes: how many minutes a machine has to answer a cordon or a drain.
    silent_seconds: for how many seconds a simulated machine is silent until its Node gets
        Ready=Unknown.
    unhealthy_seconds: for how many seconds more it is silent until its Node is unhealthy.
    registration_failed_event: whether `CWRegistrationFailedEvent` is said beside
        `CWNodeRegistrationFailed`.
    reserved_taint: whether Nodes in production have the taint of their reservation as well.
    """

    url: str = "nats://127.0.0.1:4222"
    metrics_host: str = "127.0.0.1"
    metrics_port: int = -1
    metrics_cert_file: str = ""
    metrics_key_file: str = ""
    metrics_token_file: str = ""
    hang_seconds: int = 60
    log_level: str = "info"
    log_file: str = ""
    traces: Traces = "off"
    replicas: int = 1
    snapshots: Use = "use"
    max_file_store: int = 0
    stop_with_parent: str = ""
    deprecated_conditions: Shown = "hide"
    answer_minutes: int = 30
    silent_seconds: int = 40
    unhealthy_seconds: int = 300
    registration_failed_event: Switch = "off"
    reserved_taint: Switch = "on"
    access: Access = NO_ACCESS

    @property
    def protection(self) -> Protection:
        """Who may read the metrics."""
        return Protection(self.metrics_cert_file, self.metrics_key_file, self.metrics_token_file)

    @property
    def storage_limit(self) -> int | None:
        """The most bytes that all copies of what is stored may take; None if not known."""
        return self.max_file_store * self.replicas or None

    def of(self, service: str) -> "Settings":
        """Return the settings of one service; raise SettingsError if a file cannot be used."""
        access = self.access.of(service)
        if access != self.access:
            _check_files(access)
        return replace(self, access=access, log_file=self.log_file.replace(PLACEHOLDER, service))

    def list_settings(self) -> Mapping[str, str | int]:
        """Return every setting by its name, without secrets."""
        values = {name: getattr(self, name) for name in _OWN}
        return {**values, **asdict(self.access), "url": without_password(self.url)}


# The `nodepool` command reads these settings too. It starts in 0.05 s of CPU time; with
# pydantic-settings in the place of this module it would take 0.23 s.
_OWN = tuple(name for name in Settings.__slots__ if name != "access")
FIELDS = (*_OWN, *Access.__slots__)
"""Every setting of a service."""
_INTEGER = re.compile("-?[0-9]{1,9}")
# As nats-server reads sizes in its configuration: https://docs.nats.io/running-a-nats-service/configuration
_SIZE = re.compile("(?P<number>[0-9]{1,15})((?P<unit>[KMGTPE])(?P<binary>i?B|i)?)?", re.IGNORECASE)
_SIZE_MAX = (1 << 63) - 1
# In each Pod, Kubernetes sets variables that begin with the names of the Services, see
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables.
_SERVICE_LINK = re.compile(
    "[A-Z0-9_]+_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)=.*"
    "|[A-Z0-9_]+_PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?=.*"
    "|[A-Z0-9_]+_PORT=(tcp|udp|sctp)://.*"
)
_INTEGERS = {
    "metrics_port": (-1, 65535),
    "replicas": (1, 5),
    "answer_minutes": (1, 10_080),
    "hang_seconds": (5, 3_600),
    "silent_seconds": (1, 86_400),
    "unhealthy_seconds": (1, 86_400),
}
_CHOICES = {
    "traces": get_args(Traces),
    "snapshots": get_args(Use),
    "log_level": ("debug", "info", "warning", "error"),
    "deprecated_conditions": get_args(Shown),
    "registration_failed_event": get_args(Switch),
    "reserved_taint": get_args(Switch),
}
_OF_THE_CONSOLE = ("KEYS", "LINKS", "PORT", "IDLE_MINUTES", "URL", "OIDC_FILE")
OTHERS = frozenset(
    {"ORG", "CLUSTER", "NATS_SERVER", "NATS_PORT", "DATA_DIR", "AUTH_DIR", "NODE", "PROCESSES"}
    | {"ZONE", "LEASE_NAMESPACE", "LEASE_NAME", "ACCOUNTS_FILE", "MEMBERS_FILE", "THROUGH"}
    | {f"GATEWAY_{name}" for name in ("BYTES_PER_HOUR", "WATCHES")}
    | {f"GATEWAY_{name}_PER_SECOND" for name in ("MESSAGES", "QUERIES")}
    | {f"GATEWAY_{name}_BURST" for name in ("MESSAGES", "QUERIES")}
    | {"ARCHIVE", "ARCHIVE_SEGMENT_BYTES", "INVENTORY"}
    | {f"ARCHIVE_{name}_SECONDS" for name in ("SEGMENT", "QUIET", "PATIENCE")}
    | {f"ARCHIVE_{name}_HOURS" for name in ("SNAPSHOT", "VERIFY")}
    | {"TRIM", "TRIM_KEEP_SECONDS", "TRIM_KEEP_BYTES", "TRIM_DELAY_SECONDS"}
    | {f"CONSOLE_{name}" for name in _OF_THE_CONSOLE}
    | {"METAL_POLL_SECONDS", "METAL_TRUST_BOOT_NETWORK"}
    | {f"METAL_REPORT_{name}" for name in ("PORT", "URL", "KEY_FILE")}
)
"""Settings of the command line, of `nodepool up`, of the agent of a Kubernetes cluster, of the
gateway, the archiver, the driver of `metal` and the console, which other services ignore; and the
variable that `nodepool run` sets for its program."""


def read(environment: Mapping[str, str]) -> Settings:
    """Return the `NODEPOOL_*` settings; raise SettingsError for a wrong value or unknown name."""
    values: dict[str, str | int] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        field = variable.removeprefix(PREFIX).lower()
        if field in _OWN and not is_service_link(variable, value):
            _check_text(variable, value)
            values[field] = _value(variable, field, value)
    check_names(environment)
    # See https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        values["traces"] = "off"
    settings = Settings(**values)  # type: ignore[arg-type]  # `_value` gives each field its type.
    access = _access_in(environment)
    if access == access.of(""):
        _check_files(access)
    with _translate_access_errors():
        settings.protection.check()
    check_access(access, settings.url)
    return replace(settings, access=access)


def read_switch(environment: Mapping[str, str], name: str) -> bool:
    """Return whether a setting without the prefix is on; raise SettingsError unless on or off."""
    value = environment.get(PREFIX + name, "") or "off"
    if value not in get_args(Switch):
        raise SettingsError(f"{PREFIX}{name} is {value!r}; it must be on or off")
    return value == "on"


def read_access(environment: Mapping[str, str]) -> Access:
    """Return what connections show and trust; raise SettingsError if a file cannot be used."""
    access = _access_in(environment)
    _check_files(access)
    return access


def _check_files(access: Access) -> None:
    """Raise SettingsError if a file of an access cannot be used."""
    with _translate_access_errors():
        access.check(time.time())


def _access_in(environment: Mapping[str, str]) -> Access:
    values = {name: environment.get(PREFIX + name.upper(), "") for name in Access.__slots__}
    for name, value in values.items():
        _check_text(PREFIX + name.upper(), value)
    return Access(**values)


def _check_text(variable: str, value: str) -> None:
    """Raise SettingsError for bytes that are not UTF-8, which no log line could show."""
    try:
        value.encode()
    except UnicodeEncodeError:
        shown = "no text" if "@" in value else f"{value!a}"  # A password may stand before the @.
        raise SettingsError(f"{variable} is {shown}; it must be UTF-8") from None


def check_access(access: Access, url: str) -> None:
    """Raise SettingsError if a file and the address contradict each other."""
    with _translate_access_errors():
        check_address(access, split_addresses(url))


@contextmanager
def _translate_access_errors() -> Iterator[None]:
    try:
        yield
    except AccessError as error:
        raise SettingsError(f"{PREFIX}{error.field.upper()}: {error}") from None


def check_names(environment: Mapping[str, str]) -> None:
    """Raise SettingsError for the first `NODEPOOL_*` variable that is not a known setting."""
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in OTHERS or name.lower() in FIELDS:
            continue
        if not is_service_link(variable, value):
            raise SettingsError(_format_unknown_setting(variable))


def is_service_link(variable: str, value: str) -> bool:
    """Return whether Kubernetes has set this variable for a Service of any name.

    A Service named `nodepool-metrics` sets a `NODEPOOL_METRICS_PORT`.
    """
    return _SERVICE_LINK.fullmatch(f"{variable}={value}") is not None


def _format_unknown_setting(variable: str) -> str:
    from difflib import get_close_matches

    known = [*map(str.upper, FIELDS), *sorted(OTHERS)]
    matches = get_close_matches(variable.removeprefix(PREFIX), known, n=1, cutoff=0.7)
    if matches:
        return f"{variable} is no setting; did you mean {PREFIX}{matches[0]}?"
    listed = ", ".join(f"{PREFIX}{name}" for name in known)
    return f"{variable} is no setting; the settings are {listed}"


def _value(variable: str, field: str, value: str) -> str | int:
    if field == "max_file_store":
        return _size(variable, value)
    if field in _INTEGERS:
        least, most = _INTEGERS[field]
        if not _INTEGER.fullmatch(value) or not least <= int(value) <= most:
            raise SettingsError(f"{variable} is {value!r}; it must be from {least} to {most}")
        return int(value)
    fault = address_fault(value) if field == "url" else None
    if fault is not None:
        raise SettingsError(f"{variable}: {fault}")
    if field in _CHOICES and value not in _CHOICES[field]:
        raise SettingsError(f"{variable} is {value!r}; it must be {' or '.join(_CHOICES[field])}")
    return value


def _size(variable: str, value: str) -> int:
    match = _SIZE.fullmatch(value)
    if match is None:
        raise SettingsError(f"{variable} is {value!r}; it must be a size, such as 18GB")
    power = " KMGTPE".index(match["unit"].upper()) if match["unit"] else 0
    size: int = int(match["number"]) * (1024 if match["binary"] else 1000) ** power
    if size > _SIZE_MAX:
        raise SettingsError(f"{variable} is {value!r}; it must be at most {_SIZE_MAX} bytes")
    return size
