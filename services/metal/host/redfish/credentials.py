"""Credentials, read from where an inventory says, and kept out of every text."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from metal.host.redfish.fault import Fault
from metal.host.secret import read_secret
from metal.inventory.model import Reference
from metal.replies import Trouble
from nodepool.nats.wire.errors import AccessError

HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Credential:
    """A user and a password, which no representation shows."""

    user: str = field(repr=False)
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of the header `Authorization`."""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def read_credential(reference: Reference, environment: Mapping[str, str]) -> Credential:
    """Return the credential that a reference leads to; raise Fault if it leads to none."""
    try:
        text = read_secret("credentials", reference, environment)
    except AccessError as error:
        raise _unreadable(str(error)) from None
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        place = reference.file or f"the variable {reference.environment}"
        raise _unreadable(f"{place} must hold user:password in one line")
    return Credential(user, password)


def _unreadable(text: str) -> Fault:
    return Fault(Trouble.NO_CREDENTIAL, f"no credential: {text}", may_have_acted=False)


class Secrets:
    """The words that no text may show: what a controller was last told, and what it gave."""

    def __init__(self) -> None:
        self._credential: Credential | None = None
        self._token = ""

    def learn(self, credential: Credential) -> None:
        """Hide this credential from now on, in place of the last one."""
        self._credential = credential

    def learn_token(self, token: str) -> None:
        """Hide the token of a session from now on, in place of the last one."""
        self._token = token

    def hide(self, text: str) -> str:
        """Return a text of a controller without the secrets that it repeats."""
        known = self._credential
        if known is not None:
            encoded = known.basic.removeprefix("Basic ")
            for secret in (encoded, known.password):
                text = text.replace(secret, HIDDEN)
            text = re.sub(rf"(?<!\w){re.escape(known.user)}(?!\w)", HIDDEN, text)
        return text.replace(self._token, HIDDEN) if self._token else text
