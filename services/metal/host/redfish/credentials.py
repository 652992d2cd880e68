"""Credentials, read from where an inventory says, and kept out of every text."""

import base64
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from metal.host.redfish.fault import Fault
from metal.host.secret import read_secret
from metal.inventory.model import Reference
from metal.replies import Trouble
from nodepool.nats.wire.errors import AccessError

HIDDEN = "***"
KNOWN_MAX: Final = 2
"""How many credentials, and how many tokens, are hidden: the last ones."""
SHORT_MAX: Final = 32
"""No text of a controller is cut that has so many characters."""
LINKS: Final = frozenset({"@odata.id", "Members@odata.nextLink", "target", "HttpBootUri"})
"""The fields that hold an address, which is not shown."""
T = TypeVar("T")


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
    """The words that no text may show: what a controller was told, and what it gave.

    A controller may still quote the credential or the token before the last ones.
    """

    def __init__(self) -> None:
        self._credentials: deque[Credential] = deque(maxlen=KNOWN_MAX)
        self._tokens: deque[str] = deque(maxlen=KNOWN_MAX)

    def learn(self, credential: Credential) -> None:
        """Hide this credential from now on, and the last other one."""
        _remember(self._credentials, credential)

    def learn_token(self, token: str) -> None:
        """Hide the token of a session from now on, and the last other one."""
        _remember(self._tokens, token)

    def hide(self, text: str) -> str:
        """Return a text of a controller without the secrets that it repeats."""
        for secret in self._secrets():
            text = text.replace(secret, HIDDEN)
        for known in self._credentials:
            text = re.sub(rf"(?<!\w){re.escape(known.user)}(?!\w)", HIDDEN, text)
        return text

    def clean(self, document: object, content: bytes) -> object:
        """Return a document without passwords and tokens, before any text of it is cut.

        A text that was cut, or whose spaces were joined, may hold only pieces of a secret. Other
        texts stay as they are, because a serial number may hold a short password; so do links, and
        user names, which are words.

        content: the bytes of the document, which show whether there is anything to look for.
        """
        secrets = self._secrets()
        if b"\\" not in content and not any(each.encode() in content for each in secrets):
            return document
        return _clean(document, secrets)

    def _secrets(self) -> Sequence[str]:
        """Return the secrets, the longest first, because one may be a part of another."""
        known = [*self._tokens]
        for credential in self._credentials:
            known += credential.password, credential.basic.removeprefix("Basic ")
        return sorted(known, key=len, reverse=True)


def _remember(known: deque[T], value: T) -> None:
    """Add a value as the last one."""
    if value in known:
        known.remove(value)
    known.append(value)


def _clean(value: object, secrets: Sequence[str]) -> object:
    match value:
        case str() if len(value) > SHORT_MAX or value != " ".join(value.split()):
            for secret in secrets:
                value = value.replace(secret, HIDDEN)
            return value
        case list():
            return [_clean(each, secrets) for each in value]
        case dict():
            return {
                name: each if name in LINKS else _clean(each, secrets)
                for name, each in value.items()
            }
    return value
