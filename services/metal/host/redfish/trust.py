"""How the certificate of a controller is checked."""

import ssl
from functools import lru_cache

import aiohttp

from metal.host.redfish.fault import Fault
from metal.inventory.inventory import Place
from metal.replies import Trouble
from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import BUNDLE_BYTES_MAX, content_of

Trust = ssl.SSLContext | aiohttp.Fingerprint | bool
"""What aiohttp checks a certificate by; True where there is no TLS."""


def trust_of(place: Place) -> Trust:
    """Return what a certificate is checked by; raise Fault if that cannot be read."""
    if place.fingerprint:
        return aiohttp.Fingerprint(bytes.fromhex(place.fingerprint))
    if not place.ca_file:
        return True
    try:
        return _trust_authorities(content_of("caFile", place.ca_file, BUNDLE_BYTES_MAX))
    except AccessError as error:
        raise _unusable(str(error)) from None
    except (ssl.SSLError, ValueError):
        raise _unusable(f"{place.ca_file} holds no certificates in PEM") from None


@lru_cache(64)
def _trust_authorities(pem: bytes) -> ssl.SSLContext:
    """Return a context that trusts these authorities alone; thousands of controllers share one."""
    context = ssl.create_default_context(cadata=pem.decode("ascii"))
    # As `nodepool.nats.wire.access` does: Python 3.13 refuses the authorities of many sites.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _unusable(text: str) -> Fault:
    return Fault(Trouble.UNTRUSTED, f"no authority to trust: {text}", may_have_acted=False)
