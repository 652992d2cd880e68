"""Certificates of an authority that is made for a test."""

import hashlib
import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="needs the program openssl")
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@dataclass(frozen=True)
class Certificates:
    """Files in PEM.

    ca: who signs, and is to be trusted.
    certificate, key: the server's.
    """

    ca: Path
    certificate: Path
    key: Path

    @property
    def fingerprint(self) -> str:
        """The SHA-256 fingerprint of the server's certificate, as 64 hex digits."""
        der = ssl.PEM_cert_to_DER_cert(self.certificate.read_text())
        return hashlib.sha256(der).hexdigest()

    @property
    def tls(self) -> ssl.SSLContext:
        """What the server speaks TLS with."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate, self.key)
        return tls


def certificates(folder: Path, names: str = "IP:127.0.0.1,DNS:localhost") -> Certificates:
    """A new authority, and what it has signed for a server of these names."""
    ca = folder / "ca.pem"
    _openssl("req", "-x509", *_CURVE, "-subj", "/CN=ca", "-keyout", folder / "ca.key", "-out", ca)
    words = ("-addext", f"subjectAltName={names}")
    return Certificates(ca, *_signed(folder, "server", *words))


def client_certificate(folder: Path, name: str = "client") -> tuple[Path, Path]:
    """A certificate of the folder's authority for a client, and its key."""
    return _signed(folder, name, "-addext", "extendedKeyUsage=clientAuth")


def _signed(folder: Path, name: str, *words: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    signer = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key")
    files = ("-keyout", key, "-out", certificate)
    _openssl("req", "-x509", *_CURVE, "-subj", f"/CN={name}", *signer, *words, *files)
    return certificate, key


def check_strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets contexts of TLS check as strictly as those that Python makes since 3.13."""
    create = ssl.create_default_context

    def create_strict(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = create(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_strict)


def encrypt(key: Path, into: Path) -> None:
    """Stores a key with a passphrase."""
    _openssl("pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", into)


def _openssl(*words: str | Path) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *words], check=True, capture_output=True)
