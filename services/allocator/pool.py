"""A NodePool as the allocator knows it: what it wants, may have, has, and is giving up."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from allocator.members import Member, Members
from nodepool.contract.keys import OfferingKey, PoolKey, offering_key
from nodepool.contract.model import NodePoolSpec, RemovalReason
from nodepool.state.ranking import Rank, rank


class Stage(StrEnum):
    """How far a NodePool is: it stays, it loses its last Nodes, or it has none and is forgotten."""

    ACTIVE = "active"
    DELETING = "deleting"
    EMPTIED = "emptied"


class Grant(NamedTuple):
    """How many Nodes quota grants, for which generation, and whether that is the whole target."""

    generation: int
    nodes: int
    within_quota: bool


class Check(NamedTuple):
    """The grant for which capacity was checked, and since when the NodePool waits for machines."""

    generation: int
    granted: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Pool:
    """The facts about a NodePool, from which everything else follows.

    wants: `spec` in this `generation`, `valid` or not, and the `stage` it is in.
    may have: the last `grant`, the last capacity `check`, and the largest grant that was not given
        back to quota yet, which is `outstanding`.
    has: its `members`.
    gives up: `scaled` is the target up to which it was scaled last, None before the first time;
        `removed` is how many Nodes went in the scale-down or deletion under way, None while there
        is none.
    fault: the last `CWNodeDeliverFail` about its settings; empty while they are valid.
    """

    key: PoolKey
    uid: str
    zone: str

    generation: int
    spec: NodePoolSpec
    valid: bool
    stage: Stage = Stage.ACTIVE

    grant: Grant | None = None
    check: Check | None = None
    outstanding: int = 0

    members: Members = Members()

    scaled: int | None = None
    removed: int | None = None
    fault: str = ""

    @property
    def target(self) -> int:
        """How many Nodes it wants to have in the end."""
        return self.spec.target_nodes if self.stage is Stage.ACTIVE else 0

    @property
    def may_grow(self) -> bool:
        """Whether every check has passed for what it wants now."""
        grant, check = self.grant, self.check
        return (
            self.valid
            and self.stage is Stage.ACTIVE
            and grant is not None
            and grant.within_quota
            and check is not None
            and self.generation == grant.generation == check.generation
            and grant.nodes == check.granted
        )

    @property
    def shortfall(self) -> int:
        """How many Nodes it may still have."""
        if self.grant is None or not self.may_grow:
            return 0
        return max(0, self.grant.nodes - len(self.members))

    @property
    def leaving(self) -> int:
        """How many Nodes are on their way out; of a deleted NodePool, those that leave for that."""
        members = self.members
        return members.leaving if self.stage is Stage.ACTIVE else members.deleted

    @property
    def surplus(self) -> int:
        """How many Nodes are too many and not leaving yet; negative where too many leave.

        An invalid spec removes nothing: the Nodes that are there stay.
        """
        if self.stage is Stage.ACTIVE and not self.valid:
            return 0
        return len(self.members) - self.leaving - self.target

    @property
    def unused_grant(self) -> int | None:
        """The current grant, where it is smaller than what is outstanding; else None."""
        grant = self.grant
        if grant is None or grant.generation != self.generation:
            return None
        return grant.nodes if grant.nodes < self.outstanding else None

    @property
    def offering(self) -> OfferingKey:
        """Where its machines come from."""
        return offering_key(self.zone, self.spec.instance_type)

    @property
    def rank(self) -> Rank | None:
        """Its place among those that wait for machines; None while it waits for none."""
        if self.check is None or not self.shortfall:
            return None
        return rank(self.spec, self.check.since, self.key)

    def is_leaving(self, member: Member) -> bool:
        """Whether a Node counts as `leaving`."""
        if self.stage is Stage.ACTIVE:
            return member.removal is not None
        return member.removal is RemovalReason.POOL_DELETED
