"""Operating a control plane: dead letters, backups, skipping an input, and versions."""

from pathlib import Path

from nodepool.client.backup import Backup, back_up
from nodepool.client.dead_letters import DeadLetters
from nodepool.client.errors import ClientError, Unreachable, translated
from nodepool.client.replaying import Replays
from nodepool.client.restoring import restore
from nodepool.client.session import Session
from nodepool.client.versions import Versions, read_versions
from nodepool.contract.log import LogId
from nodepool.nats import skipping
from nodepool.nats.addresses import without_password
from nodepool.nats.errors import Conflict
from nodepool.nats.skipping import Standing
from nodepool.nats.streams import STREAM, stream_info
from nodepool.service import AnyService


class Admin:
    """What an operator does, as `client.admin`; needs a connection with the rights of a service.

    dead_letters: the messages that services could not process.
    replays: sends the commands of dead letters again.

    `nodepool.client.doctor` examines an installation without a client, because the examination also
    says why no client can connect.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.dead_letters = DeadLetters(session)
        self.replays = Replays(session, self.dead_letters)

    async def backup(self, folder: Path) -> Backup:
        """Store the current log in a new folder, while the services keep running.

        Raises `ClientError` if the folder exists or cannot be written.
        """
        return await back_up(self._session, folder)

    async def restore(self, folder: Path, *, force: bool = False) -> Backup:
        """Restore the log from a backup, on a server that has no log; the services must be stopped.

        force: deletes an existing log for good, with all streams that are made from it.

        Raises `ClientError` if the backup is not whole, or if something prevents the restore.
        """
        return await restore(self._session, folder, force=force)

    async def versions(self) -> Versions:
        """Return the versions of the server and of the services at work."""
        return await read_versions(self._session)

    async def next_input(self, service: AnyService) -> Standing:
        """Return how far a service is, with its next input."""
        with translated(self._session.url):
            connection = self._session.connection
            return await skipping.standing_of(connection, service, await self._log())

    async def skip(self, service: AnyService, standing: Standing) -> None:
        """Make a service pass over its next input.

        Raises `ClientError` if the service has committed since `standing` was read.
        """
        try:
            with translated(self._session.url):
                connection = self._session.connection
                await skipping.skip(connection, service, await self._log(), standing)
        except Conflict:
            raise ClientError(
                f"{service.name} has committed meanwhile: look again at what its next input is"
            ) from None

    async def _log(self) -> LogId:
        info = await stream_info(self._session.connection, STREAM)
        if info is None:
            raise Unreachable(f"there is no log at {without_password(self._session.url)}")
        return info.log
