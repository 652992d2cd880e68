"""Whether the servers can be reached: names, ports, TLS and credentials."""

import asyncio
import os
import socket
import ssl
import stat
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from nodepool.client.doctor.finding import Finding, note, ok, problem
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.addresses import split_addresses, without_password
from nodepool.nats.wire.certificates import certificate_end
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.credentials import jwt_end
from nodepool.nats.wire.errors import AccessError

PORT_S = 2.0
"""How long a port may take to accept a connection, in seconds."""
SOON = timedelta(days=7)
"""A certificate or credential that expires within this time is reported."""
_SILENT = "port {} does not answer: a firewall, or another network"
_PORTS = {"ws": 80, "wss": 443}


async def reachable(url: str) -> list[Finding]:
    """Return a finding for each server address in the URL."""
    return [await _check_address(address) for address in split_addresses(url)]


def files(access: Access) -> list[Finding]:
    """Return notes on the credential files: readable by other users, or about to expire."""
    return [*_kept_secret(access), *_soon_over(access)]


async def _check_address(address: str) -> Finding:
    parts = urlsplit(address if "://" in address else f"nats://{address}")
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 4222)
    check = f"address {without_password(address)}"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(PORT_S):
            places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        if isinstance(error, TimeoutError):
            return problem(check, f"no answer to what {host} is", "check the DNS")
        return problem(check, f"the name {host} is not known", "correct NODEPOOL_URL, or the DNS")
    faults = {}
    for place in places:
        ip = str(place[4][0])
        faults[ip] = await _fault(ip, port)
        if not faults[ip]:
            return ok(check, f"{ip} takes connections")
    if len(set(faults.values())) > 1:
        text = "; ".join(f"{ip}: {fault}" for ip, fault in faults.items())
    else:
        text = next(iter(faults.values()))
    if text == _SILENT.format(port):
        return problem(check, text, "let this machine reach it")
    return problem(check, text, "start the server, or correct NODEPOOL_URL")


async def _fault(ip: str, port: int) -> str:
    """Return why a port cannot be connected to; empty if it can."""
    try:
        async with asyncio.timeout(PORT_S):
            _, writer = await asyncio.open_connection(ip, port)
            writer.close()
    except TimeoutError:
        return _SILENT.format(port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return f"nothing listens on port {port}: {reason}"
    return ""


def _kept_secret(access: Access) -> list[Finding]:
    """Return a note for each secret in a file that all users of this machine may read or write."""
    secrets = ("key_file", "creds_file", "nkey_file", "password_file")
    findings = []
    for name, path in asdict(access).items():
        if name in secrets and path and _mode(path) & (stat.S_IROTH | stat.S_IWOTH):
            text = f"all users of this machine may read {path}"
            findings.append(note(f"NODEPOOL_{name.upper()}", text, f"chmod 600 {path}"))
    return findings


def _mode(path: str) -> int:
    """Return the permissions of a file; 0 if the file is missing, which connecting reports."""
    try:
        return Path(path).stat().st_mode
    except OSError:
        return 0


def _soon_over(access: Access) -> list[Finding]:
    """Return a note for each credential file whose content expires within a few days."""
    findings = []
    with suppress(AccessError):  # Connecting reports this error.
        if access.cert_file:
            findings += _ends("NODEPOOL_CERT_FILE", certificate_end(access.cert_file))
        if access.creds_file and (end := jwt_end(access.creds_file)):
            findings += _ends("NODEPOOL_CREDS_FILE", end)
    return findings


def certificate_soon_over(connection: Connection) -> list[Finding]:
    """Return a note if the certificate of the server expires within a few days."""
    writer = getattr(connection._transport, "_io_writer", None)
    peer = writer.get_extra_info("peercert") if writer is not None else None
    if not peer:
        return []
    end = ssl.cert_time_to_seconds(str(peer["notAfter"]))
    return _ends("certificate of the server", datetime.fromtimestamp(end, UTC))


def _ends(check: str, end: datetime) -> list[Finding]:
    if end - datetime.now(UTC) > SOON:
        return []
    return [note(check, f"it is valid until {end:%Y-%m-%dT%H:%M:%SZ} only", "renew it in place")]


def unreachable(url: str, reason: str) -> Finding:
    """Return a problem that says why there is no connection although the ports are open."""
    check = f"connection to {without_password(url)}"
    if "mismatch" in reason:
        fix = "connect to a name that its certificate has, or have the certificate name this one"
    elif "certificate is not trusted" in reason:
        fix = "name the certificates of its issuers in NODEPOOL_CA_FILE"
    elif "certificate required" in reason or "bad certificate" in reason:
        fix = "name a certificate of your own in NODEPOOL_CERT_FILE and NODEPOOL_KEY_FILE"
    elif "user, password or credentials" in reason:
        fix = "set NODEPOOL_CREDS_FILE, NODEPOOL_NKEY_FILE or NODEPOOL_PASSWORD_FILE"
    elif "TLS" in reason:
        fix = "use nats:// without NODEPOOL_CA_FILE and NODEPOOL_CERT_FILE for a server without TLS"
    else:
        fix = "check that a NATS server listens there"
    return problem(check, reason, fix)
