"""The authority of one installation, and the certificate of its server."""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nodepool.local.errors import ServerError
from nodepool.local.listening import Certificate

AUTHORITY_DAYS: Final = 3_650
SERVER_DAYS: Final = 397
"""How long a certificate is valid; clients of some systems take none that is valid for longer."""
RENEWAL: Final = timedelta(days=60)
"""How long before its end a certificate is replaced, at a start of the server."""
_BACK: Final = timedelta(hours=1)
"""How far the clock of a client may be behind."""
_KEY_USES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def renew(files: Certificate, names: Sequence[str]) -> None:
    """Make the authority if it is missing, and a certificate unless a good one is there.

    Certificates of an authority whose key is elsewhere are left as they are. Raises ServerError if
    a file cannot be used.
    """
    own_key = files.authority.with_name("ca.key")
    try:
        if not own_key.exists() and files.certificate.exists():
            return
        files.authority.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not own_key.exists() or not files.authority.exists():
            _make_authority(files.authority, own_key)
        elif files.key.exists() and files.certificate.exists() and _serves(files, names):
            return
        _make_certificate(files, own_key, names)
    except OSError as error:
        raise ServerError(f"cannot use {error.filename}: {error.strerror}") from error
    except (ValueError, TypeError):
        text = f"the certificates in {files.authority.parent} cannot be read"
        raise ServerError(f"{text}: restore them, or remove the folder to make new ones") from None


def _serves(files: Certificate, names: Sequence[str]) -> bool:
    """Return whether a certificate has all names, and lasts."""
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lasts = certificate.not_valid_after_utc - RENEWAL > datetime.now(UTC)
    return lasts and all(name in known for name in _general_names(names))


def _make_authority(path: Path, key_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nodepool authority")])
    builder = _builder(name, name, key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    _write(key_path, _pem(key))
    _write(path, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _make_certificate(files: Certificate, own_key: Path, names: Sequence[str]) -> None:
    signer = serialization.load_pem_private_key(own_key.read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nodepool server")])
    builder = _builder(name, authority.subject, key.public_key(), SERVER_DAYS)
    for extension, is_critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage("digital_signature"), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(_general_names(names)), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=is_critical)
    _write(files.key, _pem(key))
    made = builder.sign(signer, hashes.SHA256())
    _write(files.certificate, made.public_bytes(serialization.Encoding.PEM))


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACK)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*uses: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in uses for use in _KEY_USES})


def _general_names(names: Sequence[str]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, at once."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
    new.replace(path)
