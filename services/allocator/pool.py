"""What the allocator knows about a NodePool: what it wants, may have, has, and gives up."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from allocator.members import Members
from nodepool.contract.events import CapacityChecked
from nodepool.contract.keys import OfferingKey, PoolKey, offering_key
from nodepool.contract.model import ComputeClass, NodePoolSpec, RemovalReason
from nodepool.placement.ranking import Waiting
from nodepool.placement.waits import NO_WAIT, Wait


class Stage(StrEnum):
    """The stage of a NodePool: it stays, it loses its last Nodes, or it has no Node any more."""

    ACTIVE = "active"
    DELETING = "deleting"
    EMPTIED = "emptied"


class Grant(NamedTuple):
    """How many Nodes quota grants, for which generation, and the number of the grant."""

    generation: int
    nodes: int
    number: int = 0


class Check(NamedTuple):
    """The grant for which capacity was checked, and since when the NodePool waits for machines."""

    generation: int
    granted: int
    since: datetime
    is_renewed: bool = False

    @classmethod
    def of(cls, event: CapacityChecked, last: "Check | None") -> "Check":
        """Return the check of this event; it is renewed if its grant and wait are as in `last`.

        A renewed check changes neither which NodePools are served nor their order.
        """
        check = cls(event.generation, event.granted, event.since)
        return check._replace(is_renewed=last is not None and last[:3] == check[:3])


@dataclass(frozen=True, slots=True)
class Pool:
    """The facts about a NodePool, from which everything else follows.

    wants: the `spec` of this `generation`, `valid` or not, and the `stage`. The NodePool is neither
        `valid` nor `invalid` while its validation fails.
    may have: the last `grant` and the last capacity `check`. `outstanding` is the largest grant
        that is not yet given back to quota; None once a deleted NodePool has given back all.
    quota_failed: whether its last quota check failed, so that no machine is kept for it until the
        next quota verdict.
    has: its `members`, and `wait`: since when it waits for each machine that it lacks.
    asked for: `scaled` is the target at creation, or the target of the last announced scale-up or
        scale-down. `requested` is how many Nodes it has announced to want, minus the Nodes that it
        has removed since.
    gives up: `removals` counts the removals of Nodes. `removed` is how many Nodes have left in the
        current removal; None if no removal is in progress.
    fault: what is wrong with its settings; empty while they are valid. `reported` is the fault in
        the last `CWNodeDeliverFail` about the settings.
    undelivered: its machines that failed and are not yet reported, each with the reason.
    failure: the last internal error that was reported for it; empty if there is none.
    """

    key: PoolKey
    uid: str
    zone: str

    generation: int
    spec: NodePoolSpec
    valid: bool
    stage: Stage = Stage.ACTIVE
    invalid: bool = False

    grant: Grant | None = None
    check: Check | None = None
    outstanding: int | None = 0
    quota_failed: bool = False

    members: Members = Members()
    wait: Wait = NO_WAIT

    scaled: int = 0
    requested: int = 0
    removals: int = 0
    removed: int | None = None
    fault: str = ""
    reported: str = ""
    undelivered: tuple[tuple[str, str], ...] = ()
    failure: str = ""

    @property
    def is_spot(self) -> bool:
        """Whether its Nodes may have to give way."""
        return self.spec.compute_class is ComputeClass.SPOT

    @property
    def target(self) -> int:
        """How many Nodes it wants; 0 once it is being deleted."""
        return self.spec.target if self.stage is Stage.ACTIVE else 0

    @property
    def goal(self) -> int | None:
        """How many Nodes it may have now: its grant, at most its target.

        None until quota and capacity are checked for its current generation, and None for a
        NodePool that is not valid or is being deleted.
        """
        grant, check = self.grant, self.check
        if grant is None or check is None or not self.valid or self.stage is not Stage.ACTIVE:
            return None
        if not self.generation == grant.generation == check.generation:
            return None
        return min(grant.nodes, self.target) if grant.nodes == check.granted else None

    @property
    def shortfall(self) -> int:
        """How many more Nodes it may get now."""
        goal = self.goal
        return max(0, goal - len(self.members)) if goal is not None else 0

    @property
    def claimed(self) -> int | None:
        """How many Nodes it may have now, even while its newest version is being checked.

        During the check, the number is what the last checks allow, at most the target. So a change
        of other settings does not cost the NodePool the machines that become free for it. A spot
        NodePool has no such claim. After a failed check there is no claim either: the check may
        fail for a long time, and other NodePools must not wait for it.
        """
        goal, grant, check = self.goal, self.grant, self.check
        if goal is not None or grant is None or check is None or self.quota_failed:
            return goal
        if self.is_spot or not self.valid or self.stage is not Stage.ACTIVE:
            return None
        return min(grant.nodes, check.granted, self.target)

    @property
    def claim(self) -> int:
        """Return how many machines are kept for the NodePool as machines become free.

        While its newest version is being checked, the number is at most the number of machines that
        the NodePool waited for.
        """
        claimed = self.claimed
        claim = max(0, claimed - len(self.members)) if claimed is not None else 0
        return claim if self.goal is not None else min(claim, self.wait.lacks)

    @property
    def surplus(self) -> int:
        """How many Nodes are too many and do not leave yet; negative if too many Nodes leave.

        A NodePool that is not valid keeps its Nodes. All Nodes of a deleted NodePool leave because
        of the deletion, even if they were already leaving for another reason.
        """
        members = self.members
        if self.stage is not Stage.ACTIVE:
            deleted = RemovalReason.POOL_DELETED
            kept = sum(each.removal is not deleted for each in members.reserved.values())
            return len(members) - members.deleted + kept
        return len(members) - members.leaving - self.target if self.valid else 0

    @property
    def has_too_many(self) -> bool:
        """Whether a scale-down may be incomplete; always so while the spec is not valid."""
        racks = self.members.racks
        if racks is not None:
            return not self.valid or racks.held > self.target // racks.size
        return not self.valid or len(self.members) > self.target

    @property
    def is_cancelling(self) -> bool:
        """Whether Nodes leave for a scale-down, or may leave after their removal was cancelled."""
        members = self.members
        return members.spareable > 0 or bool(members.reserved_victims) or members.is_unanswered

    @property
    def is_undeliverable(self) -> bool:
        """Whether its settings have a fault to report; a deleted NodePool reports no fault."""
        return bool(self.fault) and self.stage is Stage.ACTIVE

    @property
    def unused_grant(self) -> int | None:
        """The last grant if it is smaller than the outstanding grant; None otherwise.

        The generation of the grant and the validity of the NodePool do not matter: no Node is added
        beyond the last grant. The grant of a deleted NodePool is 0, and is given back even if no
        grant is outstanding.
        """
        if self.outstanding is None:
            return None
        if self.stage is not Stage.ACTIVE:
            return 0
        grant = self.grant
        return grant.nodes if grant is not None and grant.nodes < self.outstanding else None

    @property
    def offering(self) -> OfferingKey:
        """Where its machines come from."""
        return offering_key(self.zone, self.spec.instance_type)

    @property
    def waiting(self) -> Waiting | None:
        """How it waits for machines; None if it does not wait."""
        claim = self.claim
        if self.check is None or not claim:
            return None
        wait = self.wait
        if wait.since is None:
            wait = replace(wait, since=self.check.since)
        assert wait.since is not None
        return Waiting.of(self.key, self.spec, wait.since, wait.fitted(claim))
