"""Who may read the metrics of a service: TLS, and a token that the client has to show.

The files are read again when they change, so that a renewed certificate or token needs no restart.
"""

import time
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING

from nodepool.nats.wire.certificates import certificate_end, load_certificate
from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import one_line

if TYPE_CHECKING:
    import ssl

_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class Protection:
    """How the page of metrics is protected; each field is a path, "" for none.

    cert_file: the server's certificate and its intermediate certificates, as PEM.
    key_file: the private key of the certificate, as PEM; "" if `cert_file` contains the key.
    token_file: the token that a client shows as `Authorization: Bearer TOKEN`.
    """

    cert_file: str = ""
    key_file: str = ""
    token_file: str = ""

    def check(self) -> None:
        """Raise AccessError, with the name of the setting, if a file cannot be used."""
        try:
            if self.key_file and not self.cert_file:
                raise AccessError("cert_file", "the key needs its certificate; name the file of it")
            if self.cert_file:
                self.tls_context()
                if (end := certificate_end(self.cert_file)).timestamp() <= time.time():
                    text = f"{self.cert_file} expired at {end:%Y-%m-%dT%H:%M:%SZ}; renew it"
                    raise AccessError("cert_file", text)
            if self.token_file:
                one_line("token_file", self.token_file)
        except AccessError as error:
            raise AccessError(f"metrics_{error.field}", str(error)) from None

    def tls_context(self) -> "ssl.SSLContext":
        """Return the TLS context of a server; raise AccessError if a file cannot be used."""
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        load_certificate(context, self.cert_file, self.key_file)
        return context

    def admits(self, authorization: str) -> bool:
        """Return whether a client that sends this header may read the metrics."""
        if not self.token_file:
            return True
        try:
            token = one_line("token_file", self.token_file)
        except AccessError:
            return False
        shown = authorization[len(_SCHEME) :].strip()
        return authorization.lower().startswith(_SCHEME) and compare_digest(
            shown.encode("utf-8", "replace"), token.encode()
        )


class ServerCertificate:
    """The TLS context of a server of pages, made again once a file has changed."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection
        self._context: ssl.SSLContext | None = None
        self._stamp: object = None

    def context(self) -> "ssl.SSLContext | None":
        """Return the context; None without a certificate, and the former one for broken files."""
        protection = self._protection
        if not protection.cert_file:
            return None
        try:
            files = [path for path in (protection.cert_file, protection.key_file) if path]
            found = [Path(path).stat() for path in files]
            stamp = [(each.st_ino, each.st_mtime_ns) for each in found]
            if stamp != self._stamp:
                self._context, self._stamp = protection.tls_context(), stamp
        except (OSError, AccessError):
            pass  # A file is being replaced.
        return self._context
