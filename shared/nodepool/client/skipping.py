"""Making a service skip an input: for operators of a control plane."""

from nodepool.client.backup import Backups
from nodepool.client.errors import ClientError, Unreachable, translated
from nodepool.client.replaying import Replays
from nodepool.client.restoring import Restores
from nodepool.contract.log import LogId
from nodepool.nats import skipping
from nodepool.nats.addresses import without_password
from nodepool.nats.errors import Conflict
from nodepool.nats.skipping import Standing
from nodepool.nats.streams import STREAM, stream_info
from nodepool.service import AnyService


class Operator(Replays, Backups, Restores):
    """A connection with the rights of the services; every method may raise `Unreachable`."""

    async def next_input(self, service: AnyService) -> Standing:
        """Return how far a service is, with its next input."""
        with translated(self.url):
            return await skipping.standing_of(self._connection, service, await self._log())

    async def pass_over(self, service: AnyService, standing: Standing) -> None:
        """Make a service pass over its next input.

        Raises `ClientError` if the service has committed since `standing` was read.
        """
        try:
            with translated(self.url):
                await skipping.skip(self._connection, service, await self._log(), standing)
        except Conflict:
            raise ClientError(
                f"{service.name} has committed meanwhile: look again at what its next input is"
            ) from None

    async def _log(self) -> LogId:
        info = await stream_info(self._connection, STREAM)
        if info is None:
            raise Unreachable(f"there is no log at {without_password(self.url)}")
        return info.log
