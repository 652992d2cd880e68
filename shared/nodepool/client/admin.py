"""Operating a control plane: dead letters, backups, skipping an input, and versions."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.client.backup import back_up
from nodepool.client.doctor.finding import FAULTS
from nodepool.client.errors import ClientError, Unreachable, translate_errors
from nodepool.client.restoring import restore
from nodepool.client.session import Session
from nodepool.nats.log.replicas import replicas_at_work
from nodepool.nats.log.streams import STREAM, StreamInfo, stream_info
from nodepool.nats.wire.addresses import without_password
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import STREAM_NOT_FOUND, Conflict, ServerRefusal

if TYPE_CHECKING:
    from nodepool.client.dead_letters import DeadLetters
    from nodepool.client.past.restoring import Restored
    from nodepool.client.past.session import Moment
    from nodepool.client.replaying import Replays
    from nodepool.nats.log.skipping import Standing
    from nodepool.service import AnyService

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


class Admin:
    """What an operator does, as `client.admin`; needs a connection with the rights of a service.

    backup, restore: store the log in a folder, and make the log from it again.
    restore_archive: make the log from an archive.

    `nodepool.client.doctor` examines an installation without a client, because the examination also
    says why no client can connect.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.backup = partial(back_up, session)
        self.restore = partial(restore, session)

    async def restore_archive(
        self, archive: str, *, at: "Moment | None", days: int, force: bool
    ) -> "Restored":
        """Make the log from an archive, as `nodepool.client.past.restoring` describes."""
        # Imported here, because it loads Parquet.
        from nodepool.client.past.restoring import restore_archive

        return await restore_archive(self._session, archive, at=at, days=days, force=force)

    @cached_property
    def dead_letters(self) -> "DeadLetters":
        """The messages that services could not process."""
        from nodepool.client.dead_letters import DeadLetters

        return DeadLetters(self._session)

    @cached_property
    def replays(self) -> "Replays":
        """The part that sends the commands of dead letters again."""
        from nodepool.client.replaying import Replays

        return Replays(self._session, self.dead_letters)

    async def versions(self) -> Versions:
        """Return the versions of the server and of the services, within `SERVICES_S`."""
        server = str(self._session.connection._server_info.get("version") or UNKNOWN)
        return Versions(server, await _services(self._session.connection))

    async def next_input(self, service: "AnyService") -> "Standing":
        """Return how far a service is, with its next input.

        Raises TrimGap if the log was trimmed, and the service has no snapshot.
        """
        from nodepool.client.trim_gap import TrimGap
        from nodepool.nats.log.skipping import Known, standing_of
        from nodepool.nats.objects.snapshots import stored_manifest

        connection, known = self._session.connection, Known()
        with translate_errors(self._session.url):
            log = await self._log()
            if log.first > 1:
                with suppress(ValueError):
                    manifest = await stored_manifest(connection, service.name)
                    if manifest is not None and manifest.log == log.log:
                        known = Known(manifest.committed, manifest.expected_sequence)
                if known.committed < log.first - 1:
                    raise TrimGap(log.first, known.committed + 1)
            return await standing_of(connection, service, log.log, known)

    async def skip(self, service: "AnyService", standing: "Standing") -> None:
        """Make a service pass over its next input.

        Raises `ClientError` if the service has committed since `standing` was read.
        """
        from nodepool.nats.log.skipping import skip

        try:
            with translate_errors(self._session.url):
                log = (await self._log()).log
                await skip(self._session.connection, service, log, standing)
        except Conflict:
            raise ClientError(
                f"{service.name} has committed meanwhile: look again at what its next input is"
            ) from None

    async def _log(self) -> StreamInfo:
        info = await stream_info(self._session.connection, STREAM)
        if info is None:
            raise Unreachable(f"there is no log at {without_password(self._session.url)}")
        return info


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
