"""The settings of the process for real machines, read from the environment once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from metal.host.redfish.limits import Limits
from metal.inventory.addresses import BootNetwork
from nodepool.host.settings import PREFIX, SettingsError, read_switch
from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import one_line

_BOUNDS: Final = {
    "METAL_POLL_SECONDS": (30, 1, 600),
    "METAL_REPORT_PORT": (-1, -1, 65_535),
}
"""The default, the least and the most of each number."""
_INTEGER: Final = re.compile("-?[0-9]{1,6}")
KEY_MIN: Final = 32
"""The fewest characters of the key that signs the addresses for boots."""


@dataclass(frozen=True, slots=True)
class MetalSettings:
    """The settings that only the process for real machines has.

    inventory: the file with the inventory.
    poll_s: the pause between readings of a machine that is not about to change, in seconds.
    limits: how much is asked of controllers at a time, and for how long.
    report_port: where boots get their configuration and wipes say how they ended; 0 is any free
        port, -1 none.
    report_url: the address at which machines reach this port; empty if they do not.
    report_key: the key that signs the addresses for boots; the same for all replicas.
    trusts_network: whether nobody but machines and this service reads the network of boots.
    """

    inventory: Path
    poll_s: float = 30.0
    limits: Limits = field(default_factory=Limits)
    report_port: int = -1
    report_url: str = ""
    report_key: str = field(default="", repr=False)
    trusts_network: bool = False

    @property
    def network(self) -> BootNetwork:
        """How machines reach this process while they boot."""
        return BootNetwork(self.report_url, is_trusted=self.trusts_network)


def read_metal(environment: Mapping[str, str]) -> MetalSettings:
    """Return the settings from the environment; raise SettingsError, which names the variable."""
    path = environment.get(f"{PREFIX}INVENTORY", "")
    if not path.startswith("/"):
        found = "not set" if not path else f"{path!r}, no absolute path"
        raise SettingsError(f"{PREFIX}INVENTORY is {found}; it names the inventory file")
    settings = MetalSettings(
        inventory=Path(path),
        poll_s=_number(environment, "METAL_POLL_SECONDS"),
        limits=Limits(per_controller=1),
        report_port=_number(environment, "METAL_REPORT_PORT"),
        trusts_network=read_switch(environment, "METAL_TRUST_BOOT_NETWORK"),
    )
    return settings if settings.report_port < 0 else _with_reports(settings, environment)


def _with_reports(settings: MetalSettings, environment: Mapping[str, str]) -> MetalSettings:
    """Return the settings with the address and the key for reports of wipes."""
    url = environment.get(f"{PREFIX}METAL_REPORT_URL", "").rstrip("/")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise SettingsError(
            f"{PREFIX}METAL_REPORT_URL is {url!r}; it must be the http:// or https:// address at"
            f" which machines reach {PREFIX}METAL_REPORT_PORT"
        )
    file = environment.get(f"{PREFIX}METAL_REPORT_KEY_FILE", "")
    try:
        key = one_line("metal_report_key_file", file)
    except AccessError as error:
        raise SettingsError(f"{PREFIX}METAL_REPORT_KEY_FILE: {error}") from None
    if len(key) < KEY_MIN:
        text = f"{file} must hold at least {KEY_MIN} characters; openssl rand -hex 32 makes some"
        raise SettingsError(f"{PREFIX}METAL_REPORT_KEY_FILE: {text}")
    return replace(settings, report_url=url, report_key=key)


def _number(environment: Mapping[str, str], name: str) -> int:
    default, least, most = _BOUNDS[name]
    value = environment.get(PREFIX + name, str(default))
    if not _INTEGER.fullmatch(value) or not least <= int(value) <= most:
        raise SettingsError(f"{PREFIX}{name} is {value!r}; it must be from {least} to {most}")
    return int(value)
