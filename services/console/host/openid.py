"""The settings of the OpenID provider, in a file of YAML."""

import ssl
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from nodepool.host.settings import SettingsError

FILE_MAX: Final = 256 * 1024
"""The most bytes of the file."""
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")


def check_url(url: str) -> str:
    """Return an address that is encrypted, or stays on this machine; else raise ValueError."""
    parts = urlsplit(url)
    is_plain = parts.scheme == "http" and parts.hostname in LOOPBACK_NAMES
    if not parts.hostname or parts.username or not (parts.scheme == "https" or is_plain):
        raise ValueError("must begin with https://; http:// is for this machine alone")
    return url


def _check_user(user: str) -> str:
    org, _, name = user.partition("/")
    if user != "operator" and not (org and name and "/" not in name):
        raise ValueError("must be ORGANISATION/USER or operator")
    return user


def _check_scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    if "openid" not in scopes:
        raise ValueError("must have openid")
    return scopes


Text = Annotated[str, Field(min_length=1, max_length=1_000)]


class OpenID(BaseModel):
    """The OpenID provider, and which users its claims lead to.

    issuer: its address, as its discovery document names it.
    client_secret_file: read at each sign-in; none for a public client.
    ca_file: certificates to trust; none for those of the system.
    claim: the claim whose values `users` maps to `ORGANISATION/USER`, or to `operator`; the first
      entry that matches counts.
    session_minutes: after how long a session ends; none for the end of the token.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    issuer: Annotated[Text, AfterValidator(check_url)]
    client_id: Text = Field(alias="clientID")
    client_secret_file: Path | None = Field(None, strict=False, alias="clientSecretFile")
    ca_file: Path | None = Field(None, strict=False, alias="caFile")
    scopes: Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(_check_scopes)] = (
        *("openid", "email", "profile", "groups"),
    )
    claim: Text = "groups"
    users: Annotated[
        dict[Text, Annotated[Text, AfterValidator(_check_user)]],
        Field(min_length=1, max_length=1_000),
    ]
    session_minutes: int | None = Field(None, ge=1, le=10_080, alias="sessionMinutes")

    @property
    def host(self) -> str:
        """The host of the provider, which names it to people."""
        return urlsplit(self.issuer).netloc

    def read_secret(self) -> str:
        """Return the secret of the console; raise OSError if the file cannot be read."""
        if self.client_secret_file is None:
            return ""
        return self.client_secret_file.read_text(encoding="utf-8").strip()

    def make_context(self) -> ssl.SSLContext:
        """Return what checks the certificate of the provider; raise OSError for a wrong file."""
        return ssl.create_default_context(cafile=self.ca_file)


def read_openid(variable: str, path: Path) -> OpenID:
    """Return the settings in a file; raise SettingsError, which names the field that is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX + 1)
        if len(content) > FILE_MAX:
            raise SettingsError(f"{variable} names {path}, which has over {FILE_MAX} bytes")
        found = OpenID.model_validate(yaml.safe_load(content))
        if found.client_secret_file is not None and not found.read_secret():
            raise SettingsError(f"{variable}: {path}: clientSecretFile is empty")
        found.make_context()
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        cause = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{variable}: {path}: {field}: {cause}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{variable}: {path} is no YAML: {error}") from None
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"{variable}: {path}: a file cannot be used: {error}") from None
    return found
