"""One-time links: whoever can read a user's link on this machine can sign in as that user, once."""

import os
import secrets
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from console.host.identities import Identity

TOKEN_BYTES: Final = 32


class Links:
    """The links of all users, each in a file that only the owner of the console can read.

    A new link replaces a link that was used. The console itself keeps only the digests of links.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owners: dict[bytes, Identity] = {}
        self.base = ""

    def file_of(self, identity: Identity) -> Path:
        """Return the file with the link of a user."""
        return self._folder / identity.name.replace("/", ".")

    def refresh(self, identities: Sequence[Identity]) -> None:
        """Give a link to each user who has none, and remove the links of users who are gone."""
        for digest, owner in list(self._owners.items()):
            if owner not in identities:
                del self._owners[digest]
                self.file_of(owner).unlink(missing_ok=True)
        known = set(self._owners.values())
        for identity in identities:
            if identity not in known:
                self._issue(identity)

    def redeem(self, token: str) -> Identity | None:
        """Return the user whose link has this token, and replace it; None for other tokens."""
        identity = self._owners.pop(_digest(token), None)
        if identity is not None:
            self._issue(identity)
        return identity

    def clear(self) -> None:
        """Remove the files: after its end nobody can sign in to this console."""
        for owner in self._owners.values():
            self.file_of(owner).unlink(missing_ok=True)
        self._owners.clear()

    def _issue(self, identity: Identity) -> None:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.file_of(identity)
        new = path.with_name(f".{path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{self.base}/login?token={token}\n")
        new.replace(path)
        self._owners[_digest(token)] = identity


def _digest(token: str) -> bytes:
    # The time to look up a digest reveals nothing about a token.
    return sha256(token.encode(errors="replace")).digest()
