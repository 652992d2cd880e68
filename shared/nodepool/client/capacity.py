"""Capacity: the machines that each zone has, can spare, or holds back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodepool.client.commands import Commands, checked_command
from nodepool.client.errors import NoOutcome, Refused
from nodepool.client.objects import Objects
from nodepool.client.session import Session

if TYPE_CHECKING:
    from nodepool.contract.events import CapacityFound, CommandAccepted


class Capacity:
    """The capacity of all zones, as `client.capacity`; `Objects` describes the reading."""

    def __init__(self, session: Session, commands: Commands) -> None:
        self._org = session.org
        self._commands = commands
        self._send = commands.send
        objects = Objects(session, "capacity")
        self.get, self.list, self.watch = objects.get, objects.list, objects.watch

    async def find(self, selections: Sequence[tuple[str, int]]) -> "CapacityFound":
        """Return the zones that likely have these numbers of spot Nodes of each type, best first.

        selections: instance types, each once, with the number of Nodes. Nothing is reserved.
        """
        from nodepool.contract.commands import FindCapacity
        from nodepool.contract.events import CapacityFound

        items = [{"instanceType": name, "count": count} for name, count in selections]
        query = checked_command(FindCapacity, {"org": self._org, "selections": items})
        async with self._commands.sender([query], CapacityFound) as sender:
            found = await sender.send(query)
        if isinstance(found, Refused | NoOutcome):
            raise found
        return found

    async def reclaim(self, zone: str, instance_type: str, count: int) -> "CommandAccepted":
        """Hold back `count` more machines: free machines, then those of preempted Nodes."""
        from nodepool.contract.commands_spot import ReclaimCapacity

        fields = {"zone": zone, "instance_type": instance_type, "count": count}
        return await self._send(checked_command(ReclaimCapacity, fields))

    async def give_back(self, zone: str, instance_type: str, count: int) -> "CommandAccepted":
        """Give back `count` of the machines that `reclaim` holds back."""
        from nodepool.contract.commands_spot import ReturnCapacity

        fields = {"zone": zone, "instance_type": instance_type, "count": count}
        return await self._send(checked_command(ReturnCapacity, fields))
