"""The credentials of a control plane that `nodepool up` runs, found by its address."""

import os
from collections.abc import Mapping
from pathlib import Path

from nodepool.nats.wire.access import NO_ACCESS, Access

LOOPBACK = "127.0.0.1"
_LOCAL = (LOOPBACK, "localhost", "::1")
_PORT = 4222


def operator_link(port: int, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where the key of the operator of the server on a port is linked; None if nowhere.

    See https://specifications.freedesktop.org/basedir-spec/latest/.
    """
    folder = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():
        try:
            folder = Path.home() / ".config"
        except RuntimeError:  # This user has no home directory.
            return None
    return folder / "nodepool" / "keys" / f"{LOOPBACK}:{port}.nk"


def authority_link(link: Path) -> Path:
    """Return where the certificates to trust are linked beside the key of an operator."""
    return link.with_suffix(".pem")


def access_to(url: str, access: Access) -> Access:
    """Return what to show at an address: `access`, or else the linked key of an operator.

    Only a single address of this machine without a user has one, and only while the control plane
    runs: a link that leads nowhere is ignored.
    """
    from urllib.parse import urlsplit

    if access != NO_ACCESS or "," in url:
        return access
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        return access
    link = operator_link(port) if host in _LOCAL and parts.username is None else None
    if link is None or not link.exists():
        return access
    authority = authority_link(link)
    return Access(ca_file=str(authority) if authority.exists() else "", nkey_file=str(link))
