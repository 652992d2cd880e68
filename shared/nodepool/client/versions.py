"""The versions of the server and of the services that are at work."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nodepool.client.doctor.finding import FAULTS
from nodepool.client.session import Session
from nodepool.nats.connection import Connection
from nodepool.nats.errors import STREAM_NOT_FOUND, ServerRefusal
from nodepool.nats.replicas import replicas_at_work

CONNECTING_S: Final = 2.0
"""How long connecting may take for a user who asks for versions, in seconds."""
SERVICES_S: Final = 2.0
"""How long the server may take to list the services that read the log, in seconds."""
UNKNOWN: Final = "unknown"
"""The version of a program that does not report its version."""


class Versions(NamedTuple):
    """The versions of a control plane.

    server: the version of the NATS server.
    services: the versions of the replicas of each service at work, by the name of the service;
        None if this user may not list the services, or the server does not list them in time.
    """

    server: str
    services: Mapping[str, Sequence[str]] | None


async def read_versions(session: Session) -> Versions:
    """Return the versions of the server and of the services, within `SERVICES_S`."""
    server = str(session.connection._server_info.get("version") or UNKNOWN)
    return Versions(server, await _services(session.connection))


async def _services(connection: Connection) -> Mapping[str, Sequence[str]] | None:
    try:
        async with asyncio.timeout(SERVICES_S):
            readings = await replicas_at_work(connection)
    except FAULTS as error:
        is_empty = isinstance(error, ServerRefusal) and error.code == STREAM_NOT_FOUND
        return {} if is_empty else None
    found: dict[str, set[str]] = {}
    for reading in readings:
        found.setdefault(reading.service, set()).add(reading.version or UNKNOWN)
    return {name: sorted(found[name]) for name in sorted(found)}
