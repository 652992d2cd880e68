"""What the allocator knows about a NodePool: its Nodes, what it has announced, what it gives up."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from allocator.members import Member, Members
from nodepool.contract import events as on
from nodepool.contract.conditions import Validated
from nodepool.contract.model import RemovalReason
from nodepool.placement.claims import Claimant
from nodepool.state.values import replace

Announced = (
    on.GrantAcknowledged
    | on.AllocationFailed
    | on.AllocationRecovered
    | on.CWNodePoolScaledUp
    | on.CWNodeRequestQueued
    | on.CWNodePoolRemoveNodes
    | on.CWNodePoolNodesRemoved
    | on.CWNodePoolScaledDown
    | on.CWNodeDeliverFail
)
"""The allocator's own events about a NodePool."""
Left = on.CWNodeDeleted | on.CWNodeRegistrationFailed
"""The messages after which a Node is no longer in its NodePool."""


class Stage(StrEnum):
    """The stage of a NodePool: it stays, it loses its last Nodes, or it has no Node any more."""

    ACTIVE = "active"
    DELETING = "deleting"
    EMPTIED = "emptied"


@dataclass(frozen=True)
class Pool(Claimant):
    """A NodePool until it is gone.

    outstanding: the largest grant that is not yet given back to quota; None once a deleted NodePool
        has given back all.
    members: its Nodes.
    scaled: the target at creation, or the target of the last announced scale-up or scale-down.
    shrinks_from: how many Nodes the last removal began with, or `scaled` if that was more; 0 once a
        scale-down is announced.
    requested: how many Nodes it has announced to want, with those that its reservation gave back
        and a scale-up kept, minus those of them it has removed since.
    removals: how many removals of Nodes it has begun.
    removed: how many Nodes have left in the current removal; None if no removal is in progress.
    fault: the message of a `Settings` fault of the spec; empty without one. The validator reports a
        wrong instance type or zone itself.
    reported: the fault in the last `CWNodeDeliverFail` about the settings.
    undelivered: its machines that did not register and are not yet reported, each with the reason.
    failure: the last internal error that was reported for it; empty if there is none.
    """

    stage: Stage = Stage.ACTIVE
    outstanding: int | None = 0
    members: Members = Members()
    scaled: int = 0
    shrinks_from: int = 0
    requested: int = 0
    removals: int = 0
    removed: int | None = None
    fault: str = ""
    reported: str = ""
    undelivered: tuple[tuple[str, str], ...] = ()
    failure: str = ""

    @property
    def held(self) -> int:
        """Return how many Nodes it has."""
        return len(self.members)

    @property
    def domains(self) -> Mapping[str, int]:
        """Return how many of its Nodes are in each NVLink domain."""
        return {domain: counts.held for domain, counts in self.members.domains.items()}

    @property
    def leaving(self) -> Mapping[str, int]:
        """Return how many of its Nodes in each NVLink domain leave for a scale-down."""
        return {domain: counts.spareable for domain, counts in self.members.domains.items()}

    @property
    def target(self) -> int:
        """Return how many Nodes it wants; 0 once it is being deleted.

        It wants no more than its grant if the control plane has given back Nodes beyond its
        grant.
        """
        if self.stage is not Stage.ACTIVE:
            return 0
        grant, target = self.grant, self.spec.target
        return min(target, grant.nodes) if grant is not None and grant.beyond else target

    @property
    def racks_wanted(self) -> int:
        """How many racks it wants; a Node is a rack of a type that does not come in racks."""
        return -(-self.target // self.rack_size)

    @property
    def shortfall(self) -> int:
        """How many more Nodes it may get now."""
        return max(0, (self.goal or 0) - len(self.members))

    @property
    def surplus(self) -> int:
        """How many Nodes are too many and do not leave yet; negative if too many Nodes leave.

        A NodePool that is not valid keeps its Nodes. All Nodes of a deleted NodePool leave because
        of the deletion, even if they were already leaving for another reason.
        """
        members, counts = self.members, self.members.counts
        if self.stage is not Stage.ACTIVE:
            deleted = RemovalReason.POOL_DELETED
            kept = sum(each.removal is not deleted for each in members.reserved.values())
            return counts.held - counts.deleted + kept
        return counts.staying - self.target if self.valid else 0

    @property
    def has_too_many(self) -> bool:
        """Whether a scale-down may be incomplete; always so while the spec is not valid."""
        return not self.valid or self.members.counts.racks > self.racks_wanted

    @property
    def scaled_from(self) -> int:
        """Return how many Nodes it had or announced before its scale-down: the greater number."""
        return max(self.scaled, self.shrinks_from)

    @property
    def has_open_scale_down(self) -> bool:
        """Return whether the end of a scale-down has not been published yet."""
        return self.target < self.scaled_from

    @property
    def has_settings_fault(self) -> bool:
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


def specify(known: Pool | None, event: on.NodePoolValidated) -> Pool:
    """Return the NodePool with this desired state; a new NodePool if `known` is None."""
    valid, spec = event.reason is Validated.VALID, event.spec
    fault = event.message if event.fault == "Settings" else ""
    if known is None:
        identity = (event.key, event.uid, event.zone)
        members = Members(spec.rack_size or 1)
        known = Pool(*identity, 0, spec, valid, members=members, scaled=spec.target)
    pool = replace(
        known.with_spec(event.generation, spec, event.reason),
        fault=fault,
        reported=known.reported if fault else "",
    )
    # An invalid NodePool may get no Node, so it gives its grant back.
    return _without_grant(pool) if pool.invalid else pool


def grant(pool: Pool, verdict: on.QuotaChecked, now: datetime) -> Pool:
    """Return the NodePool with a grant.

    A grant for an older generation is not used, but is given back. So is any grant of an invalid
    NodePool. If such a grant has the number of the last grant, it is given back already.
    """
    after = pool.with_grant(verdict, now)
    is_known = pool.grant is not None and pool.grant.number == verdict.number
    if pool.invalid and is_known:
        return replace(after, grant=pool.grant)
    after = replace(after, outstanding=max(pool.outstanding or 0, verdict.granted))
    return _without_grant(after) if pool.invalid else after


def _without_grant(pool: Pool) -> Pool:
    grant = pool.grant
    return pool if grant is None else replace(pool, grant=grant._replace(nodes=0, beyond=0))


def announce(pool: Pool, event: Announced) -> Pool:
    """Return the NodePool after the allocator announced something about it."""
    match event:
        case on.GrantAcknowledged(granted=nodes):
            return replace(pool, outstanding=nodes if pool.stage is Stage.ACTIVE else None)
        case on.AllocationFailed(message=text):
            return replace(pool, failure=text)
        case on.AllocationRecovered():
            return replace(pool, failure="")
        case on.CWNodePoolScaledUp(after=after):
            # A Node that its reservation gave back is wanted from now on, though never requested.
            requested = max(pool.requested, min(after, pool.held))
            return replace(pool, scaled=after, requested=requested)
        case on.CWNodeRequestQueued(granted=nodes):
            return replace(pool, requested=nodes)
        case on.CWNodePoolRemoveNodes(before=before):
            return replace(pool, removals=pool.removals + 1, removed=0, shrinks_from=before)
        case on.CWNodePoolNodesRemoved(removal=removal):
            emptied = removal is RemovalReason.POOL_DELETED
            return replace(pool, stage=Stage.EMPTIED if emptied else pool.stage, removed=None)
        case on.CWNodePoolScaledDown(after=after):
            requested = min(pool.requested, after)
            return replace(pool, scaled=after, shrinks_from=0, requested=requested)
        case on.CWNodeDeliverFail(node=node):
            return _mark_reported(pool, node)
        case _:
            assert_never(event)


def drop_node(pool: Pool, member: Member, event: Left) -> Pool:
    """Return the NodePool without this Node, which counts as removed if it was a victim.

    A victim counts whatever ended its stay, even if its removal was cancelled too late. The machine
    of a Node that did not register goes to triage (`Inventory.depart`). If the NodePool still lacks
    the Node, it gets back the position that the machine had filled (`Wait.after_leaving`), and
    another machine takes its place.
    """
    pool = replace(pool, members=pool.members.put(event.node, None))
    if isinstance(event, on.CWNodeRegistrationFailed) and pool.stage is Stage.ACTIVE:
        pool = replace(pool, undelivered=(*pool.undelivered, (event.node, event.message)))
    if pool.removed is None:
        return pool
    is_chosen = member.removal is not None or member.is_cancelled
    is_victim = is_chosen and member.removed_in == pool.removals
    too_late = isinstance(event, on.CWNodeDeleted) and event.removal is RemovalReason.SCALE_DOWN
    if not (is_victim or too_late or pool.stage is Stage.DELETING):
        return pool
    # A Node that its reservation gave back may have been one more than was announced.
    requested = max(pool.requested - 1, min(pool.requested, pool.held))
    return replace(pool, removed=pool.removed + 1, requested=requested)


def _mark_reported(pool: Pool, node: str) -> Pool:
    """Return the NodePool after the report that `node` could not be delivered.

    node: empty if the settings of the NodePool are wrong, so that no Node can be delivered.
    """
    if not node:
        return replace(pool, reported=pool.fault)
    rest = list(pool.undelivered)
    rest.remove(next(each for each in rest if each[0] == node))
    return replace(pool, undelivered=tuple(rest))
