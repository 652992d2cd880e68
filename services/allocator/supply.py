"""The machines of an offering on which NodePools and operators may count besides its stock."""

from dataclasses import dataclass
from datetime import datetime

from immutables import Map

from allocator.members import Member
from nodepool.contract.keys import MachineKey, PoolKey
from nodepool.contract.timetable import GONE_AFTER
from nodepool.state.maps import mark, put
from nodepool.state.queue import Queue
from nodepool.state.values import replace


@dataclass(frozen=True, slots=True)
class Supply:
    """The supply of an offering apart from its stock: machines of spot and leaving Nodes.

    spot: its spot NodePools.
    shrinking: the NodePools, of any class, with Nodes that must still be asked to leave.
    returning: the machines, of Nodes of any class, that certainly come back soon.
    lingering: the machines that certainly come back after a long drain, each with the drain's end.
    asked: the machines of spot Nodes that were asked to give way, and may still stay, in the order
        in which they were asked.
    """

    spot: Map[PoolKey, bool] = Map()
    shrinking: Map[PoolKey, bool] = Map()
    returning: Map[MachineKey, bool] = Map()
    lingering: Map[MachineKey, datetime] = Map()
    asked: Queue[MachineKey] = Queue()

    def returning_soon(self, now: datetime) -> list[MachineKey]:
        """Return the machines whose long drain ends no later than a preemption that begins now."""
        return [key for key, by in self.lingering.items() if by <= now + GONE_AFTER]

    def next_look(self, now: datetime) -> datetime | None:
        """Return when the next long drain ends soon enough; None if no Node may stay for that."""
        if not len(self.asked):
            return None
        moments = (by - GONE_AFTER for by in self.lingering.values())
        return min((moment for moment in moments if moment > now), default=None)

    def with_node(self, key: MachineKey, member: Member) -> "Supply":
        """Return the supply with what is certain of the machine of this Node."""
        returning = mark(self.returning, key, is_in=member.returns)
        lingering = put(self.lingering, key, member.returns_by)
        asked = self.asked.put(key) if member.may_stay else self.asked.drop(key)
        if returning is self.returning and lingering is self.lingering and asked is self.asked:
            return self
        return replace(self, returning=returning, lingering=lingering, asked=asked)


NO_SUPPLY = Supply()
