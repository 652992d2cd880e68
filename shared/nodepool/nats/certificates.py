"""Until when a certificate is valid; Python's ssl module tells this only of a peer's certificate.

A certificate is DER-encoded, see https://www.rfc-editor.org/rfc/rfc5280#section-4.1.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from nodepool.nats.access_files import AccessError, content_of

_VERSION = 0xA0
_GENERALIZED_TIME = 0x18
_FORMS = {False: "%y%m%d%H%M%SZ", True: "%Y%m%d%H%M%SZ"}
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


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
