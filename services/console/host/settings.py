"""The settings of the console, read from the environment once."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from console.host.openid import OpenID, check_url, read_openid
from nodepool.host.settings import PREFIX, Settings, SettingsError, read

LOOPBACK: Final = "127.0.0.1"
"""The one address on which the console listens: a one-time link is no login for other machines."""
_NUMBER = re.compile("[0-9]{1,6}")
_BOUNDS: Final = {"port": (0, 65_535), "idle_minutes": (1, 10_080)}


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings of one console.

    service: the settings that every service has.
    keys: the folder with the credentials of users, `<organisation>/<user>.nk`.
    links: the folder into which the console writes the one-time link of each user.
    port: where it listens on this machine; 0 for any port.
    idle_minutes: after how long without a request a session ends.
    url: where browsers on other machines reach it, through a proxy; empty if none do.
    openid: who signs users in beside one-time links; None for nobody.
    """

    service: Settings
    keys: Path
    links: Path
    port: int = 9480
    idle_minutes: int = 720
    url: str = ""
    openid: OpenID | None = None

    def list_settings(self) -> Mapping[str, object]:
        """Return every setting by its name, without secrets."""
        own = {"keys": str(self.keys), "links": str(self.links)}
        numbers = {"port": self.port, "idle_minutes": self.idle_minutes}
        issuer = {"url": self.url, "oidc_issuer": self.openid.issuer if self.openid else ""}
        return {**self.service.list_settings(), **own, **numbers, **issuer}


def read_console(environment: Mapping[str, str] = os.environ) -> ConsoleSettings:
    """Return the settings from `NODEPOOL_*`; its own begin with `NODEPOOL_CONSOLE_`.

    Raises SettingsError, which names the variable, if a variable is missing or cannot be used.
    """
    service = read(environment).of("console")
    folders = {name: environment.get(f"{PREFIX}CONSOLE_{name.upper()}", "") for name in _FOLDERS}
    for name, about in _FOLDERS.items():
        if not folders[name]:
            raise SettingsError(f"{PREFIX}CONSOLE_{name.upper()} is not set; it names {about}")
    given = {name: _number(environment, name) for name in _BOUNDS}
    numbers = {name: number for name, number in given.items() if number is not None}
    variable = f"{PREFIX}CONSOLE_OIDC_FILE"
    file = environment.get(variable, "")
    return ConsoleSettings(
        service,
        Path(folders["keys"]),
        Path(folders["links"]),
        **numbers,
        url=_read_url(environment, is_signed_in_to=bool(file)),
        openid=read_openid(variable, Path(file)) if file else None,
    )


_FOLDERS: Final = {
    "keys": "the folder with the keys of users, which 'nodepool auth' makes",
    "links": "the folder for the one-time links",
}


def _read_url(environment: Mapping[str, str], *, is_signed_in_to: bool) -> str:
    """Return the address for browsers elsewhere, which a one-time link does not open."""
    variable = f"{PREFIX}CONSOLE_URL"
    url = environment.get(variable, "").rstrip("/")
    if not url:
        return ""
    parts = urlsplit(url)
    try:
        check_url(url)
    except ValueError as error:
        raise SettingsError(f"{variable} is {url!r}; it {error}") from None
    if parts.path or parts.query or parts.fragment or parts.netloc != parts.netloc.lower():
        raise SettingsError(f"{variable} is {url!r}; it must be like https://console.example.com")
    if not is_signed_in_to:
        raise SettingsError(f"{variable} needs {PREFIX}CONSOLE_OIDC_FILE: nobody could sign in")
    return url


def _number(environment: Mapping[str, str], name: str) -> int | None:
    variable = f"{PREFIX}CONSOLE_{name.upper()}"
    value = environment.get(variable, "")
    if not value:
        return None
    least, most = _BOUNDS[name]
    if not _NUMBER.fullmatch(value) or not least <= int(value) <= most:
        raise SettingsError(f"{variable} is {value!r}; it must be from {least} to {most}")
    return int(value)
