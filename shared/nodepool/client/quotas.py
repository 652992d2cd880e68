"""Quotas: how many Nodes of each type the organisation may hold in each zone."""

from typing import TYPE_CHECKING

from nodepool.client.commands import Commands
from nodepool.client.objects import Objects
from nodepool.client.session import Session

if TYPE_CHECKING:
    from nodepool.contract.events import CommandAccepted


class Quotas:
    """The quotas of the organisation, as `client.quotas`; `Objects` describes the reading."""

    def __init__(self, session: Session, commands: Commands) -> None:
        self._org = session.org
        self._send = commands.send
        objects = Objects(session, "quotas")
        self.get, self.list, self.watch = objects.get, objects.list, objects.watch

    async def set(self, zone: str, instance_type: str, limit: int) -> "CommandAccepted":
        """Set how many Nodes of a type the organisation may hold in a zone."""
        from nodepool.contract.commands import SetQuota

        return await self._send(
            SetQuota(org=self._org, zone=zone, instance_type=instance_type, limit=limit)
        )

    async def delete(self, zone: str, instance_type: str) -> "CommandAccepted":
        """Unset the organisation's limit for a type in a zone; no Node is removed."""
        from nodepool.contract.commands import DeleteQuota

        return await self._send(DeleteQuota(org=self._org, zone=zone, instance_type=instance_type))
