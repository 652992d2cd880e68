"""The authority of one installation, and the certificate of its server.

A key is written before its certificate. Whatever a crash leaves is completed by the next start, or
made again: of a certificate of the server, nobody else has a copy.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nodepool.auth.folder import replace_files
from nodepool.local.errors import ServerError
from nodepool.local.listening import Certificate

AUTHORITY_DAYS: Final = 3_650
SERVER_DAYS: Final = 397
"""How long a certificate is valid; clients of some systems take none that is valid for longer."""
RENEWAL: Final = timedelta(days=60)
"""How long before its end a certificate is replaced, at a start of the server."""
_RESTORE: Final = "restore them, or remove the folder to make new ones"
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
        if not own_key.exists() and (files.certificate.exists() or files.authority.exists()):
            _check_complete(files)
            return
        files.authority.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not files.authority.exists():
            _make_authority(files.authority, own_key)
        signer, authority = _load_key(own_key), _load(files.authority)
        if signer.public_key() != authority.public_key():
            text = f"{own_key} is not the key of {files.authority.name}"
            raise ServerError(f"{text}: {_RESTORE}")
        if not (_is_pair(files) and _serves(files, authority, names)):
            _make_certificate(files, signer, authority, names)
    except OSError as error:
        raise ServerError(f"cannot use {error.filename}: {error.strerror}") from error
    except (ValueError, TypeError):
        text = f"the certificates in {files.authority.parent} cannot be read"
        raise ServerError(f"{text}: {_RESTORE}") from None


def _check_complete(files: Certificate) -> None:
    """Raise ServerError if a file of an authority from elsewhere is missing."""
    paths = (files.certificate, files.authority, files.key)
    present = next(path.name for path in paths if path.exists())
    for path in paths:
        if not path.exists():
            text = f"{files.authority.parent} has {present}, and neither ca.key nor {path.name}"
            raise ServerError(f"{text}: {_RESTORE}")


def _is_pair(files: Certificate) -> bool:
    """Return whether the certificate and its key are there, and belong together.

    They do not after a crash between the two.
    """
    if not (files.key.exists() and files.certificate.exists()):
        return False
    return _load_key(files.key).public_key() == _load(files.certificate).public_key()


def _serves(files: Certificate, authority: x509.Certificate, names: Sequence[str]) -> bool:
    """Return whether a certificate is of the authority, has all names, and lasts."""
    certificate = _load(files.certificate)
    try:
        certificate.verify_directly_issued_by(authority)
    except InvalidSignature:
        return False
    known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lasts = certificate.not_valid_after_utc - RENEWAL > datetime.now(UTC)
    return lasts and all(name in known for name in _general_names(names))


def _make_authority(path: Path, key_path: Path) -> None:
    """Make an authority; with the key that is there, clients trust it as they did before."""
    is_new = not key_path.exists()
    key = ec.generate_private_key(ec.SECP256R1()) if is_new else _load_key(key_path)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nodepool authority")])
    builder = _builder(name, name, key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    replace_files({key_path: _pem(key), path: _pem(builder.sign(key, hashes.SHA256()))})


def _make_certificate(
    files: Certificate,
    signer: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: Sequence[str],
) -> None:
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
    made = builder.sign(signer, hashes.SHA256())
    replace_files({files.key: _pem(key), files.certificate: _pem(made)})


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


def _load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError
    return key


def _pem(made: ec.EllipticCurvePrivateKey | x509.Certificate) -> str:
    encoding = serialization.Encoding.PEM
    if isinstance(made, x509.Certificate):
        return made.public_bytes(encoding).decode()
    form, locked = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return made.private_bytes(encoding, form, locked).decode()
