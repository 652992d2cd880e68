"""What an inventory may write as addresses, fingerprints and references; no secret is quoted."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from metal.inventory.model import CONFIG, REPORT, Reference

_HOST: Final = re.compile(r"[0-9a-z]([0-9a-z.-]{0,251}[0-9a-z])?|[0-9a-f:.]{2,45}", re.ASCII)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_FINGERPRINT: Final = re.compile(r"(?:sha256:)?((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_URL_MAX: Final = 1_024
_PATH_MAX: Final = 1_024
REFERENCE_RULE: Final = (
    "write the secret to a file of mode 0600 and name that file with {file: /its/path}, or name a"
    " variable with {environment: ITS_NAME}"
)
"""How an inventory names a secret, which it must not hold itself."""


@dataclass(frozen=True, slots=True)
class BootNetwork:
    """How machines reach the service while they boot.

    report_url: the address at which they do; empty if they do not.
    is_trusted: whether an operator says that nobody else reads what passes there.
    """

    report_url: str = ""
    is_trusted: bool = False


def address_fault(address: str) -> str | None:
    """Return why this is no address of a controller; None if it is one."""
    url = _split(address)
    if url is None:
        return "is no address; write https:// and a host, perhaps with a port"
    if url.username is not None or url.password is not None or "@" in url.netloc:
        return "must not hold a user or a password; give them as credentials"
    if url.path not in ("", "/") or url.query or url.fragment:
        return "must end after the host and the port; a system is named by controller.system"
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        return "must begin with https://; http:// is for emulators on the loopback only"
    if url.scheme not in ("http", "https"):
        return "must begin with https://"
    return None


def image_fault(image: str) -> str | None:
    """Return why this is no address of a boot image; None if it is one."""
    url = _split(image)
    if url is None or url.scheme not in ("http", "https"):
        return "is no address of an image; begin with https://"
    if "@" in url.netloc:
        return "must not hold a user or a password"
    return None


def secret_fault(image: str, secret: str, network: BootNetwork) -> str | None:
    """Return why a boot from an image would show a secret to others; None if it would not.

    secret: what whoever reads the address that the machine gets could take.
    """
    place = next((each for each in (CONFIG, REPORT) if each in image), "")
    if not place or network.is_trusted:
        return None
    unless = "or set NODEPOOL_METAL_TRUST_BOOT_NETWORK=on if nobody else reads that network"
    if _is_plain(image):
        return (
            f"must begin with https://: over http://, the address that takes the place of {place}"
            f" is in clear text, and with it {secret}; {unless}"
        )
    if _is_plain(network.report_url):
        return (
            f"needs https:// in NODEPOOL_METAL_REPORT_URL: {place} stands for an address there, at"
            f" which {secret} would pass in clear text; {unless}"
        )
    return None


def _is_plain(address: str) -> bool:
    """Return whether what passes at an address leaves this host without TLS."""
    url = _split(address)
    return url is not None and url.scheme == "http" and url.hostname not in _LOOPBACK


def _split(address: str) -> SplitResult | None:
    """Return the parts of a URL; None if it has no host, or a port that is none."""
    if len(address) > _URL_MAX or not address.isascii() or not address.isprintable():
        return None
    try:
        url = urlsplit(address)
        is_url = bool(_HOST.fullmatch(url.hostname or "")) and url.port != 0 and " " not in address
    except ValueError:
        return None
    return url if is_url else None


def plain_address(address: str) -> str:
    """Return an address in the form in which two equal ones are the same text."""
    url = _split(address)
    if url is None:
        return address
    host = url.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    usual = {"https": 443, "http": 80}.get(url.scheme)
    port = "" if url.port in (None, usual) else f":{url.port}"
    return f"{url.scheme}://{shown}{port}"


def fingerprint_fault(fingerprint: str) -> str | None:
    """Return why this is no SHA-256 fingerprint; None if it is one."""
    if plain_fingerprint(fingerprint):
        return None
    return (
        "is no SHA-256 fingerprint: sha256: and 64 hex digits; read it with openssl x509 -noout"
        " -fingerprint -sha256"
    )


def plain_fingerprint(fingerprint: str) -> str:
    """Return the 64 hex digits of a fingerprint; empty if it is none."""
    found = _FINGERPRINT.fullmatch(fingerprint.strip().lower())
    return found[1].replace(":", "") if found else ""


def reference_fault(reference: Reference) -> str | None:
    """Return why a reference leads to no secret; None if it leads to one."""
    if bool(reference.file) == bool(reference.environment):
        return f"needs either file or environment; {REFERENCE_RULE}"
    if reference.file and file_fault(reference.file):
        return f"file is no absolute path; {REFERENCE_RULE}"
    if reference.environment and not _VARIABLE.fullmatch(reference.environment):
        return f"environment is no name of a variable; {REFERENCE_RULE}"
    return None


def file_fault(path: str) -> str | None:
    """Return why this is no path of a file; None if it is one."""
    if path.startswith("/") and path.isprintable() and len(path) <= _PATH_MAX:
        return None
    return "must be an absolute path"
