"""The settings of the gateway, read from the environment once."""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from nodepool.host.settings import PREFIX, Settings, SettingsError, read

_NUMBER = re.compile("[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The settings of one replica of the gateway; each budget is that of one organisation.

    service: the settings that every service has.
    members_file: who the users of the organisations are, as `nodepool.contract.actors` has it.
    archive: where the archive is, from which the past is shown; empty if no past is shown.
    messages_per_second, messages_burst: how many commands and observations it may send.
    queries_per_second, queries_burst: how many queries it may send.
    bytes_per_hour: how many bytes of it are stored within any hour.
    watches: how many of its queries may wait for changes at a time.
    """

    service: Settings
    members_file: str
    archive: str = ""
    messages_per_second: int = 200
    messages_burst: int = 1_000
    queries_per_second: int = 100
    queries_burst: int = 500
    bytes_per_hour: int = 256 << 20
    watches: int = 64

    def list_settings(self) -> Mapping[str, object]:
        """Return every setting by its name, without secrets."""
        own = {name: value for name, value in asdict(self).items() if name != "service"}
        return {**self.service.list_settings(), **own}


BUDGETS = tuple(
    name for name in GatewaySettings.__slots__ if name not in ("service", "members_file", "archive")
)


def read_gateway(environment: Mapping[str, str] = os.environ) -> GatewaySettings:
    """Return the settings from `NODEPOOL_*`; the budgets begin with `NODEPOOL_GATEWAY_`.

    Raises SettingsError, which names the variable, if a variable is missing or cannot be used.
    """
    service = read(environment).of("gateway")
    members = environment.get(f"{PREFIX}MEMBERS_FILE", "")
    if not members:
        raise SettingsError(
            f"{PREFIX}MEMBERS_FILE is not set; it names the file with the users of organisations"
        )
    given = {name: _number(environment, name) for name in BUDGETS}
    budgets = {name: number for name, number in given.items() if number is not None}
    return GatewaySettings(service, members, environment.get(f"{PREFIX}ARCHIVE", ""), **budgets)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    variable = f"{PREFIX}GATEWAY_{name.upper()}"
    value = environment.get(variable, "")
    if not value:
        return None
    if not _NUMBER.fullmatch(value) or int(value) == 0:
        raise SettingsError(f"{variable} is {value!r}; it must be a number from 1 on")
    return int(value)
