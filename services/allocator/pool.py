"""A NodePool as the allocator knows it: what it wants, may have, has, and is giving up."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from allocator.members import Members
from nodepool.contract.events import CapacityChecked
from nodepool.contract.keys import OfferingKey, PoolKey, offering_key
from nodepool.contract.model import ComputeClass, NodePoolSpec, RemovalReason
from nodepool.state.ranking import Waiting
from nodepool.state.waits import NO_WAIT, Wait


class Stage(StrEnum):
    """How far a NodePool is: it stays, it loses its last Nodes, or it has none and is forgotten."""

    ACTIVE = "active"
    DELETING = "deleting"
    EMPTIED = "emptied"


class Grant(NamedTuple):
    """How many Nodes quota grants, for which generation, and the number of that grant."""

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

    wants: `spec` in this `generation`, `valid` or not, and the `stage` it is in. It is neither
        `valid` nor `invalid` while its validation fails.
    may have: the last `grant`, the last capacity `check`, and the largest grant that was not given
        back to quota yet, which is `outstanding`; None once a deleted NodePool gave back all.
    quota_failed: whether the last check of its quota failed, so that no machine is kept for it
        while another check is to come.
    has: its `members`, and `wait`, since when it waits for each machine that it lacks.
    asked for: `scaled` is the last announced target: the target at creation, or that of the last
        scale-up or scale-down that was said; `requested` is how many Nodes it has announced to
        want, less those that it removed since.
    gives up: `removals` counts the removals of Nodes, and `removed` is how many went in the one
        that is under way, None while there is none.
    fault: what is wrong with its settings; empty while they are valid. `reported` is the fault that
        the last `CWNodeDeliverFail` about them named.
    undelivered: its machines that failed and were not reported yet, each with the reason.
    failure: the last internal error that it was reported with; empty while there is none.
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
        """How many Nodes it wants to have in the end."""
        return self.spec.target if self.stage is Stage.ACTIVE else 0

    @property
    def goal(self) -> int | None:
        """How many Nodes it may have by now: its grant, at most its target.

        None while a check of what it wants now is still to come, or has not passed.
        """
        grant, check = self.grant, self.check
        if grant is None or check is None or not self.valid or self.stage is not Stage.ACTIVE:
            return None
        if not self.generation == grant.generation == check.generation:
            return None
        return min(grant.nodes, self.target) if grant.nodes == check.granted else None

    @property
    def shortfall(self) -> int:
        """How many Nodes it may still have."""
        goal = self.goal
        return max(0, goal - len(self.members)) if goal is not None else 0

    @property
    def claimed(self) -> int | None:
        """How many Nodes it may have by now, also while what it wants now is being checked.

        Then it is what its last checks allow, at most its target: a change of other settings is not
        to cost it the machines that come free for it. This holds against spot, and not for it. A
        check that failed may fail for long, so no other NodePool waits for the end of that.
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

        While its newest version is being checked, these are no more than the NodePool waited for.
        """
        claimed = self.claimed
        claim = max(0, claimed - len(self.members)) if claimed is not None else 0
        return claim if self.goal is not None else min(claim, self.wait.lacks)

    @property
    def surplus(self) -> int:
        """How many Nodes are too many and not leaving yet; negative where too many leave.

        An invalid spec removes nothing: the Nodes that are there stay. All Nodes of a deleted
        NodePool leave because it is deleted, whatever they were leaving for before.
        """
        members = self.members
        if self.stage is not Stage.ACTIVE:
            deleted = RemovalReason.POOL_DELETED
            kept = sum(each.removal is not deleted for each in members.reserved.values())
            return len(members) - members.deleted + kept
        return len(members) - members.leaving - self.target if self.valid else 0

    @property
    def has_too_many(self) -> bool:
        """Whether a scale-down is not complete; what an invalid spec wants is not known."""
        racks = self.members.racks
        if racks is not None:
            return not self.valid or racks.held > self.target // racks.size
        return not self.valid or len(self.members) > self.target

    @property
    def is_cancelling(self) -> bool:
        """Whether Nodes leave for a scale-down, or may leave although that was cancelled."""
        members = self.members
        return members.spareable > 0 or bool(members.reserved_victims) or members.is_unanswered

    @property
    def is_undeliverable(self) -> bool:
        """Whether its settings are to be reported; nothing is reported of a deleted NodePool."""
        return bool(self.fault) and self.stage is Stage.ACTIVE

    @property
    def unused_grant(self) -> int | None:
        """The last grant, where it is smaller than what is outstanding; else None.

        Whichever generation it is for, and whether or not the NodePool is valid: no Node is added
        beyond it. The grant of a deleted NodePool is 0, and is given back whatever is outstanding.
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
        """How it waits for machines; None while it waits for none."""
        claim = self.claim
        if self.check is None or not claim:
            return None
        wait = self.wait
        if wait.since is None:
            wait = replace(wait, since=self.check.since)
        assert wait.since is not None
        return Waiting.of(self.key, self.spec, wait.since, wait.fitted(claim))
