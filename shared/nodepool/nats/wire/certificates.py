"""Certificates in files: their keys, and until when they are valid."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import content_of

if TYPE_CHECKING:
    import ssl

# Python's ssl module tells the expiry only of a peer's and of an authority's certificate. The field
# of another certificate is read from its DER: https://www.rfc-editor.org/rfc/rfc5280#section-4.1.
_VERSION = 0xA0
_GENERALIZED_TIME = 0x18
_FORMS = {False: "%y%m%d%H%M%SZ", True: "%Y%m%d%H%M%SZ"}
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def load_certificate(context: "ssl.SSLContext", cert_file: str, key_file: str) -> None:
    """Have a TLS context show a certificate; raise AccessError if a file cannot be used.

    key_file: the private key of the certificate; "" if `cert_file` contains the key.
    """
    import ssl

    certificate = content_of("cert_file", cert_file)
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        text = f"{cert_file} holds no certificate; it must be one in PEM"
        raise AccessError("cert_file", text)
    path = key_file or cert_file
    key = content_of("key_file", key_file) if key_file else certificate
    if b"PRIVATE KEY-----" not in key:
        text = f"{path} holds no private key; it must be one in PEM"
        raise AccessError("key_file", text)

    def passphrase() -> str:
        text = f"the key in {path} has a passphrase; it must be stored without"
        raise AccessError("key_file", text)

    try:
        context.load_cert_chain(cert_file, key_file or None, passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"the key in {path} is not that of the certificate in {cert_file}"
            raise AccessError("key_file", text) from None
        text = f"{cert_file} and {path} cannot be used; they must be valid PEM"
        raise AccessError("cert_file", text) from None


def certificate_end(path: str) -> datetime:
    """Return when the first certificate of a PEM file expires; raise AccessError if it has none."""
    match = _PEM.search(content_of("cert_file", path))
    try:
        import ssl

        if match is None:
            raise ValueError
        return _not_after(ssl.PEM_cert_to_DER_cert(match[0].decode()))
    except (ValueError, IndexError):
        text = f"{path} holds no certificate; it must be one in PEM"
        raise AccessError("cert_file", text) from None


def _not_after(der: bytes) -> datetime:
    (_, certificate), *_ = _elements(der)
    (_, signed), *_ = _elements(certificate)
    fields = [field for field in _elements(signed) if field[0] != _VERSION]
    # Serial number, algorithm and issuer come first.
    _, (kind, end) = _elements(fields[3][1])
    form = _FORMS[kind == _GENERALIZED_TIME]
    return datetime.strptime(end.decode(), form).replace(tzinfo=UTC)


def _elements(der: bytes) -> Sequence[tuple[int, bytes]]:
    """Return the tag and content of each DER element; raise IndexError if the DER is cut short."""
    elements, at = [], 0
    while at < len(der):
        tag, size, at = der[at], der[at + 1], at + 2
        if size & 0x80:
            end = at + (size & 0x7F)
            size, at = int.from_bytes(der[at:end], "big"), end
        elements.append((tag, der[at : at + size]))
        at += size
    return elements
