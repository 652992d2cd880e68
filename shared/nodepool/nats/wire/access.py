"""Whom a connection trusts, what it shows to the server, and where it gets its replies.

Each file is read again for each connection. A renewed certificate or password is therefore used at
the next connection, without a restart.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nodepool.nats.wire.addresses import user_of
from nodepool.nats.wire.certificates import certificate_end, load_certificate
from nodepool.nats.wire.credentials import (
    KeyPair,
    comments_of,
    inbox_prefix_of,
    is_prefix,
    jwt_of,
    key_pair,
    nkey_of,
    seed_of,
)
from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import BUNDLE_BYTES_MAX, content_of, one_line

if TYPE_CHECKING:
    import ssl

PER_SERVICE = ("creds_file", "nkey_file", "password_file", "inbox_prefix")
"""The fields that may differ between the services of a process."""
PLACEHOLDER = "{service}"
INBOX_PREFIX = "_INBOX"
"""The default prefix of the subjects on which NATS clients await replies."""


@dataclass(frozen=True, slots=True)
class Access:
    """Whom to trust, who asks, and where replies go; each `_file` is a path, "" for none.

    ca_file: the certificates to trust, as PEM; "" for the system's.
    cert_file: the client's own certificate and its intermediate certificates, as PEM. With either
        of these two files, a client sends nothing to a server without TLS, whatever its address.
    key_file: the private key of the certificate, as PEM; "" if `cert_file` contains the key.
    creds_file: credentials: a user's JWT and the seed of its nkey, as `nsc` writes them.
    nkey_file: the seed of a user's nkey alone, below comments.
    password_file: the password of the user in the address, or a token if the address has no user;
        below comments, as in `nkey_file`.
    inbox_prefix: the prefix of the subjects of replies; "" for the prefix that a comment in
        `nkey_file` or `password_file` names, or `_INBOX`. If the server permits each user only a
        prefix of its own, no user can read the replies to another user.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    creds_file: str = ""
    nkey_file: str = ""
    password_file: str = ""
    inbox_prefix: str = ""

    def of(self, service: str) -> "Access":
        """Return what a service of a process shows: its name takes the place of `{service}`."""
        own = {name: getattr(self, name).replace(PLACEHOLDER, service) for name in PER_SERVICE}
        return replace(self, **own)

    def check(self, now_s: float) -> None:
        """Raise AccessError if a setting or file cannot be used; `now_s` is the Unix time."""
        if self.inbox_prefix and not is_prefix(self.inbox_prefix):
            text = f"{self.inbox_prefix!r} cannot begin a subject; write it as _INBOX_name"
            raise AccessError("inbox_prefix", text)
        if self.creds_file and self.nkey_file:
            raise AccessError("nkey_file", "credentials hold an nkey already; name one of the two")
        if self.key_file and not self.cert_file:
            raise AccessError("cert_file", "the key needs its certificate; name the file of it")
        if self.ca_file or self.cert_file:
            self.tls_context()
        if self.cert_file and (end := certificate_end(self.cert_file)).timestamp() <= now_s:
            text = f"{self.cert_file} expired at {end:%Y-%m-%dT%H:%M:%SZ}; it must be renewed"
            raise AccessError("cert_file", text)
        if self.creds_file:
            jwt_of(self.creds_file, now_s)
        if self.creds_file or self.nkey_file:
            self.key_pair()
            self.reply_prefix()
        if self.password_file:
            self.password()
            self.reply_prefix()

    def tls_context(self) -> "ssl.SSLContext":
        """Return the TLS context for connections; raise AccessError if a file cannot be used."""
        import ssl

        if self.ca_file:
            content_of("ca_file", self.ca_file, BUNDLE_BYTES_MAX)
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except ssl.SSLError:
            text = f"{self.ca_file} holds no certificates; it must be a file of them in PEM"
            raise AccessError("ca_file", text) from None
        # Since Python 3.13, an authority needs extensions that `openssl req -x509` leaves out, see
        # https://docs.python.org/3/whatsnew/3.13.html#ssl; other NATS clients do not need them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.cert_file:
            load_certificate(context, self.cert_file, self.key_file)
        return context

    @property
    def certificates(self) -> str:
        """The first field with certificates, which have a use over TLS alone; "" for none."""
        return next((name for name in ("ca_file", "cert_file") if getattr(self, name)), "")

    @property
    def is_shown(self) -> bool:
        """Return whether any certificate, key, credential or password file is set."""
        return replace(self, inbox_prefix="") != NO_ACCESS

    def key_pair(self) -> KeyPair:
        """Return the nkey that signs; raise AccessError if its file cannot be used."""
        if not self.creds_file:
            return nkey_of(self.nkey_file)
        return key_pair("creds_file", self.creds_file, seed_of(self.creds_file))

    def reply_prefix(self) -> str:
        """Return the prefix of replies; raise AccessError if the file that names it is unusable."""
        field, path = self._commented_file
        own = self.inbox_prefix or (inbox_prefix_of(field, path) if path else "")
        return own or INBOX_PREFIX

    def comments(self) -> Sequence[str]:
        """Return the comments in the file of a key or a password, one of which says whose it is.

        Raises AccessError if the file cannot be read.
        """
        field, path = self._commented_file
        return comments_of(field, path) if path else ()

    @property
    def _commented_file(self) -> tuple[str, str]:
        if self.nkey_file:
            return "nkey_file", self.nkey_file
        return "password_file", self.password_file

    def jwt(self) -> str:
        """Return the user's JWT; raise AccessError if the credentials file cannot be used."""
        return jwt_of(self.creds_file)

    def sign(self, nonce: str) -> tuple[str, bytes]:
        """Return the public nkey, and the signature of the server's nonce in base64."""
        pair = self.key_pair()
        return pair.public_key, base64.b64encode(pair.sign(nonce.encode()))

    def password(self) -> str:
        """Return the password or token; raise AccessError if its file cannot be used."""
        return one_line("password_file", self.password_file)


NO_ACCESS = Access()
"""Show nothing to the server, and trust the certificates of the system."""


def check_address(access: Access, addresses: Sequence[str]) -> None:
    """Raise AccessError if the addresses contradict each other or the files."""
    if access.certificates and any(address.startswith("ws://") for address in addresses):
        text = "an address with ws:// is not encrypted; write it as wss://HOST:PORT"
        raise AccessError(access.certificates, text)
    if not access.password_file:
        return
    users = [user_of(address) for address in addresses]
    if any(":" in user for user in users):
        text = "the address holds a password too; write it as nats://USER@HOST:PORT"
        raise AccessError("password_file", text)
    if len(set(users)) > 1:
        text = "the addresses name different users; name the same one in each"
        raise AccessError("password_file", text)
