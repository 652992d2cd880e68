"""The addresses that are made for one boot of one machine, which nobody can guess.

In the address of an image `{config}` stands for the address of its configuration, and `{report}`
for that of the report of a wipe. Each is signed with the key of all replicas.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from metal.inventory.model import CONFIG, REPORT
from nodepool.contract.events import PowerRequested

Path = tuple[str, ...]
"""The words of a path, without the signature at its end."""
HIDDEN: Final = "***"
_SHOWN: Final = 16
"""How many digits of a signature may stay visible: a controller may cut its text anywhere."""


def config_path(zone: str, machine: str, number: int) -> Path:
    """Return the path of the configuration of a boot. number: that of its power request."""
    return "boots", zone, machine, str(number)


def report_path(zone: str, machine: str, wipe: int, number: int) -> Path:
    """Return the path of the report of a wipe."""
    return "wipes", zone, machine, str(wipe), str(number)


class Addresses:
    """The addresses for boots. url: how machines reach them; empty if nothing answers there."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key.encode()

    @property
    def are_served(self) -> bool:
        """Whether a boot can get its configuration, and a wipe can report its end."""
        return bool(self._url)

    def fill(self, image: str, request: PowerRequested) -> str:
        """Return the address of an image with the addresses for this boot filled in."""
        if not self._url:
            return image
        for mark, path in _paths_of(request).items():
            image = image.replace(mark, quote(self.sign(path), safe=""))
        return image

    def sign(self, path: Path) -> str:
        """Return the address with a path, which ends with its signature."""
        words = (quote(each, safe="") for each in (*path, self._signature(path)))
        return "/".join((self._url, *words))

    def has_signed(self, path: Path, signature: str) -> bool:
        """Return whether an address with this path was made with the key."""
        return hmac.compare_digest(self._signature(path).encode(), signature.encode())

    def hide(self, text: str, request: PowerRequested) -> str:
        """Return a text of a controller, which may quote an address, without its signature."""
        for path in _paths_of(request).values():
            text = re.sub(f"{self._signature(path)[:_SHOWN]}[0-9a-f]*", HIDDEN, text)
        return text

    def _signature(self, path: Path) -> str:
        """Return the signature of a path, which only a holder of the key can make."""
        return hmac.new(self._key, "/".join(path).encode(), hashlib.sha256).hexdigest()


def _paths_of(request: PowerRequested) -> Mapping[str, Path]:
    """Return the path of each address for a boot, by its placeholder."""
    boot = (request.zone, request.machine)
    return {
        CONFIG: config_path(*boot, request.number),
        REPORT: report_path(*boot, request.wipe, request.number),
    }
