"""The state of the allocator: NodePools, machines, and the NodePools that wait for machines."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from immutables import Map

from allocator import Hears, Says
from allocator.changes import (
    Announced,
    Left,
    MemberChanged,
    announced,
    granted,
    left,
    member_changed,
    specified,
)
from allocator.demand import offered, stored, supplied
from allocator.members import NOBODY, Member
from allocator.pool import Check, Pool, Stage
from allocator.supply import NONE, Supplies, Supply
from nodepool.contract import events as on
from nodepool.contract.commands_spot import ReclaimCapacity, ReturnCapacity
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, offering_key
from nodepool.placement.machines import Inventory, MachineChanged
from nodepool.placement.racks import domain_of
from nodepool.placement.ranking import Ranking
from nodepool.placement.reclaims import outstanding
from nodepool.placement.waits import exchanged
from nodepool.service import Context
from nodepool.state.work import WithWork


@dataclass(frozen=True, slots=True)
class State(WithWork[OfferingKey | PoolKey]):
    """NodePools, machines, and the NodePools that wait for machines of each offering.

    assignments: how many assignments of machines to NodePools there were.
    supplies: the supply of each offering apart from its free machines.
    work: offerings in which a machine may change hands, NodePools with more due events than one
        decision can hold, and failed NodePools and offerings with the time of their retry.
    """

    pools: Map[PoolKey, Pool] = Map()
    inventory: Inventory = Inventory()
    waiting: Map[OfferingKey, Ranking] = Map()
    assignments: int = 0
    supplies: Supplies = Map()

    def pool(self, key: PoolKey, uid: str) -> Pool | None:
        """Return the NodePool of this key if it has this uid; None otherwise."""
        pool = self.pools.get(key)
        return pool if pool is not None and pool.uid == uid else None

    def supply(self, offering: OfferingKey) -> Supply:
        """Return the supply of an offering apart from its free machines."""
        return self.supplies.get(offering, NONE)

    def outstanding(self, offering: OfferingKey) -> int:
        """Return how many more machines to hold back."""
        return outstanding(self.inventory, offering, self.supply(offering).to_reclaim)

    def returned(self, offering: OfferingKey) -> int:
        """Return how many held-back machines to set free again."""
        return max(0, self.inventory.reclaimed_count(offering) - self.supply(offering).to_reclaim)


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message.

    A message about a NodePool or a Node that is gone changes no NodePool and no Node.
    """
    match message:
        case on.NodePoolValidated():
            return _specified(state, message)
        case on.NodePoolDeleting() | on.CWNodePoolDeleted():
            return _deleted(state, message)
        case on.QuotaChecked(key=key, uid=uid):
            return _granted(state, state.pool(key, uid), message, context)
        case on.QuotaCheckFailed(key=key):
            pool = state.pools.get(key)
            return state if pool is None else stored(state, replace(pool, quota_failed=True))
        case on.CapacityChecked(key=key, uid=uid):
            return _checked(state, state.pool(key, uid), message)
        case on.CapacityCheckFailed(key=key, uid=uid):
            pool = state.pool(key, uid)
            return _checked(state, pool, None)
        case (
            on.MachineAdded() | on.MachineRepaired() | on.MachineReclaimed() | on.MachineReturned()
        ):
            return _machine_changed(state, message)
        case on.CWNodeAssigned():
            return _assigned(state, message, context)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return _left(state, message, context)
        case (
            on.CWNodeDeletionRequestSuccess()
            | on.NodeActivityChanged()
            | on.NodeUpdated()
            | on.CWDrainNode()
        ):
            return _member_changed(state, message, context)
        case (
            on.NodeKept() | on.NodeRemovalCancelled() | on.CWNodeCordoned() | on.CWNodeUncordoned()
        ):
            return _member_changed(state, message, context)
        case (
            on.NodePreempted()
            | on.PreemptionPending()
            | on.NodePreemptionRequested()
            | on.CWNodeRegistered()
        ):
            return _member_changed(state, message, context)
        case on.NodeReservationChanged():
            return _reservation_changed(state, message, context)
        case on.CapacityReclaimed() | on.CapacityReclaimFailed():
            return _reclaim_changed(state, message, context)
        case on.CWNodePoolScaledUp() | on.CWNodePoolScaledDown() | on.GrantAcknowledged():
            return _announced(state, message)
        case on.CWNodePoolRemoveNodes() | on.CWNodePoolNodesRemoved() | on.CWNodeRequestQueued():
            return _announced(state, message)
        case on.CWNodeDeliverFail():
            return _announced(state, message)
        case on.AllocationFailed() | on.AllocationRecovered():
            return _retried(state, message, context)
        case on.CWNodePoolNodesRequestFailed() | ReclaimCapacity() | ReturnCapacity():
            return state
        case _:
            assert_never(message)


def _specified(state: State, event: on.NodePoolValidated) -> State:
    return stored(state, specified(state.pool(event.key, event.uid), event))


def _deleted(state: State, event: on.NodePoolDeleting | on.CWNodePoolDeleted) -> State:
    """Return the state without a NodePool that is gone; a deleted NodePool may get no Node."""
    pool = state.pool(event.key, event.uid)
    if pool is None:
        return state
    if isinstance(event, on.CWNodePoolDeleted):
        state = supplied(state, pool.offering, state.supply(pool.offering).without_pool(pool.key))
        return replace(state, pools=state.pools.delete(pool.key), work=state.work.drop(pool.key))
    if pool.stage is not Stage.ACTIVE:
        return state
    pool = replace(pool, stage=Stage.DELETING, grant=None, check=None, removed=None, undelivered=())
    return stored(state, pool)


def _granted(state: State, pool: Pool | None, verdict: on.QuotaChecked, context: Context) -> State:
    """Return the state with a grant, unless a deleted NodePool has given the grant back."""
    if pool is None or pool.outstanding is None or pool.stage is not Stage.ACTIVE:
        return state
    after = granted(pool, verdict)
    if verdict.generation == pool.generation:
        nodes, held = min(verdict.granted, pool.spec.target), len(pool.members)
        after = replace(after, wait=pool.wait.with_grant(nodes, held, context.time))
    is_back = pool.goal is None and after.goal is not None  # Capacity was checked for this grant.
    return offered(stored(state, after), pool.offering) if is_back else stored(state, after)


def _checked(state: State, pool: Pool | None, event: on.CapacityChecked | None) -> State:
    """Return the state with a capacity check, or without a check if the check failed."""
    if pool is None or pool.stage is not Stage.ACTIVE:
        return state
    check = Check.of(event, pool.check) if event is not None else None
    return stored(state, replace(pool, check=check))


def _machine_changed(state: State, event: MachineChanged) -> State:
    """Return the state after a machine changed hands; an unknown machine is not repaired."""
    inventory = state.inventory.changed(event)
    machine = inventory.machines.get(event.machine_key)
    state = replace(state, inventory=inventory)
    return state if machine is None else offered(state, machine.offering)


def _assigned(state: State, event: on.CWNodeAssigned, context: Context) -> State:
    pool = state.pools[event.key]
    ranking = state.waiting.get(pool.offering, Ranking())
    position = ranking.consumed(pool.key)
    since = position[1] if position is not None else pool.wait.first
    inventory = state.inventory.assign(event.machine_key, event.key, event.assignment, since)
    assignments = max(state.assignments, event.assignment)
    state = replace(state, inventory=inventory, assignments=assignments)
    if position is not None and position[0] != pool.key:
        state, pool = _exchanged(state, pool, state.pools[position[0]], position[1])
    elif since is not None:
        pool = replace(pool, wait=pool.wait.without_position(since))
    domain = domain_of(event.labels)
    member = Member(event.assignment, domain=domain, batch=context.position)
    members = pool.members.put(event.node, member)
    return offered(stored(state, replace(pool, members=members)), pool.offering)


def _exchanged(state: State, pool: Pool, owner: Pool, since: datetime) -> tuple[State, Pool]:
    """Return the state in which `owner` has the first position of `pool`, which takes its own."""
    wait, other = exchanged(pool.wait, owner.wait, since)
    return stored(state, replace(owner, wait=other)), replace(pool, wait=wait)


def _reclaim_changed(
    state: State, event: on.CapacityReclaimed | on.CapacityReclaimFailed, context: Context
) -> State:
    """Return the state with a new number of machines to hold back, or due to retry."""
    offering = offering_key(event.zone, event.instance_type)
    if isinstance(event, on.CapacityReclaimFailed):
        return replace(state, work=state.work.failed(offering, context.time))
    supply = replace(state.supply(offering), to_reclaim=event.count)
    return offered(supplied(state, offering, supply), offering)


def _left(state: State, event: Left, context: Context) -> State:
    machine = state.inventory.machines.get(event.machine_key)
    state = replace(state, inventory=state.inventory.depart(event))
    pool = state.pools.get(event.key)
    member = pool.members.get(event.node, event.assignment) if pool is not None else None
    if pool is not None and member is not None:
        after = left(pool, member, event)
        failed = isinstance(event, on.CWNodeRegistrationFailed) and machine is not None
        since = machine.since if machine is not None and failed else None
        wait = after.wait
        if not member.is_reserved:  # A reserved Node was lost when its reservation changed.
            wait = wait.after_failed_boot(len(after.members), since, context.time)
        state = stored(state, replace(after, wait=wait))
        state = _returning(state, pool.offering, event.machine_key, NOBODY)
    return offered(state, state.inventory.machines[event.machine_key].offering)


def _member_changed(state: State, event: MemberChanged, context: Context) -> State:
    pool = state.pools.get(event.key)
    member = pool.members.get(event.node, event.assignment) if pool is not None else None
    if pool is None or member is None:
        return state
    changed = member_changed(pool, member, event, context.time)
    if changed is member:
        return state
    state = stored(state, replace(pool, members=pool.members.put(event.node, changed)))
    state = _returning(state, pool.offering, event.machine_key, changed)
    return offered(state, pool.offering) if changed.is_new_supply(member) else state


def _reservation_changed(state: State, event: on.NodeReservationChanged, context: Context) -> State:
    """Return the state in which a NodePool holds a Node no more, or holds it again."""
    pool = state.pools.get(event.key)
    before = len(pool.members) if pool is not None else 0
    state = _member_changed(state, event, context)
    pool = state.pools.get(event.key)
    if pool is None or len(pool.members) == before:
        return state
    held = len(pool.members)
    wait = pool.wait.after_loss(held, context.time) if held < before else pool.wait.after_gain(held)
    return offered(stored(state, replace(pool, wait=wait)), pool.offering)


def _returning(state: State, offering: OfferingKey, key: MachineKey, member: Member) -> State:
    supply = state.supply(offering).with_machine(key, returns=member.returns, by=member.returns_by)
    return supplied(state, offering, supply)


def _announced(state: State, event: Announced) -> State:
    pool = state.pools.get(event.key)
    return state if pool is None else stored(state, announced(pool, event))


def _retried(
    state: State, event: on.AllocationFailed | on.AllocationRecovered, context: Context
) -> State:
    """Return the state in which a failed NodePool is reconciled again until that succeeds."""
    if event.key not in state.pools:
        return state
    state = _announced(state, event)
    if isinstance(event, on.AllocationFailed):
        return replace(state, work=state.work.failed(event.key, context.time))
    return replace(state, work=state.work.succeeded(event.key))
