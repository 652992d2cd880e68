"""A NodePool as the allocator knows it: its wish, its grant, and its Nodes."""

from dataclasses import dataclass
from datetime import datetime

from immutables import Map

from allocator.choose import Member
from nodepool.contract.model import NodePoolSpec, RemovalReason
from nodepool.service import IMMEDIATELY
from nodepool.state.inventory import offering


@dataclass(frozen=True, slots=True)
class Removal:
    """A scale-down on its way: the target it began from, and the Nodes gone since."""

    before: int
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool's wish, grant and Nodes.

    `bound` is the largest grant that was not given back; `cleared` tells that capacity was checked
    for this generation and grant; `scaled` is the target that was granted last.
    """

    of: tuple[str, str, str]
    uid: str
    zone: str
    generation: int
    spec: NodePoolSpec
    valid: bool
    fault: str = ""
    granted: int = 0
    granted_for: int = 0
    within_quota: bool = False
    bound: int = 0
    cleared: bool = False
    since: datetime = IMMEDIATELY
    scaled: int | None = None
    requested: int = 0
    deleting: bool = False
    finished: bool = False
    removal: Removal | None = None
    leaving: int = 0
    members: Map[str, Member] = Map()

    @property
    def offering(self) -> str:
        """Where its machines come from."""
        return offering(self.zone, self.spec.instance_type)

    @property
    def may_grow(self) -> bool:
        """Whether every check has passed for what it wants now."""
        judged = self.granted_for == self.generation and self.cleared
        return self.valid and self.within_quota and judged and not self.deleting

    @property
    def shortfall(self) -> int:
        """How many Nodes it may still have."""
        return max(0, self.granted - len(self.members)) if self.may_grow else 0

    @property
    def surplus(self) -> int:
        """How many Nodes are too many and not leaving yet; negative where too many leave.

        An invalid wish removes nothing: the Nodes that are there stay.
        """
        if not (self.valid or self.deleting):
            return 0
        target = 0 if self.deleting else self.spec.target_nodes
        return len(self.members) - self.leaving - target

    def leaves(self, member: Member) -> bool:
        """Whether this Node was asked to leave, for good where the NodePool itself is to go."""
        if self.deleting:
            return member.removal is RemovalReason.POOL_DELETED
        return member.removal is not None
