"""What the allocator knows: NodePools, machines, and the NodePools that wait for machines."""

from dataclasses import dataclass, replace
from typing import assert_never

from immutables import Map

from allocator import Hears, Says
from allocator.members import Member
from allocator.pool import Check, Grant, Pool, Stage
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeDeliverFail,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRequestFailed,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    CWNodePoolScaledUp,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeRequestQueued,
    GrantAcknowledged,
    MachineAdded,
    MachineRepaired,
    NodeActivityChanged,
    NodeKept,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    PreemptionPending,
    QuotaChecked,
)
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.contract.model import RemovalReason
from nodepool.service import Context
from nodepool.state.inventory import Inventory
from nodepool.state.ranking import Ranking
from nodepool.state.work import WithWork


@dataclass(frozen=True, slots=True)
class State(WithWork[OfferingKey | PoolKey]):
    """NodePools, machines, and the NodePools that wait for machines of each offering.

    assignments: how often a machine was assigned to a NodePool.
    work: offerings in which a NodePool waits and a machine is free, and NodePools of which one
        decision could not hold all that was missing.
    """

    pools: Map[PoolKey, Pool] = Map()
    inventory: Inventory = Inventory()
    waiting: Map[OfferingKey, Ranking] = Map()
    assignments: int = 0

    def pool(self, key: PoolKey, uid: str) -> Pool | None:
        """The NodePool of this key, if it is the one with this uid."""
        pool = self.pools.get(key)
        return pool if pool is not None and pool.uid == uid else None


def evolve(state: State, message: Hears | Says, _context: Context) -> State:
    """The state after a message; one about a NodePool or a Node that is gone changes neither."""
    match message:
        case NodePoolValidated():
            return _specified(state, message)
        case NodePoolDeleting(key=key, uid=uid):
            return _deleting(state, state.pool(key, uid))
        case CWNodePoolDeleted(key=key, uid=uid):
            return _deleted(state, state.pool(key, uid))
        case QuotaChecked(key=key, uid=uid):
            return _granted(state, state.pool(key, uid), message)
        case CapacityChecked(key=key, uid=uid):
            check = Check(message.generation, message.granted, message.since)
            return _checked(state, state.pool(key, uid), check)
        case CapacityCheckFailed(key=key):
            return _checked(state, state.pools.get(key), None)
        case MachineAdded():
            state = replace(state, inventory=state.inventory.add(message))
            return _offered(state, state.inventory.machines[message.machine_key].offering)
        case MachineRepaired():
            return _repaired(state, message)
        case CWNodeAssigned():
            return _assigned(state, message)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _left(state, message)
        case CWNodeRegistered() | NodeActivityChanged() | NodeKept() | NodeRemovalCancelled():
            return _member_changed(state, message)
        case NodePreempted() | PreemptionPending() | CWNodeDeletionRequestSuccess():
            return _member_changed(state, message)
        case CWNodePoolScaledUp() | CWNodeRequestQueued() | GrantAcknowledged():
            return _announced(state, message)
        case CWNodePoolRemoveNodes() | CWNodePoolNodesRemoved() | CWNodePoolScaledDown():
            return _announced(state, message)
        case CWNodeDeliverFail():
            return _announced(state, message)
        case AllocationFailed() | AllocationRecovered() | CWNodePoolNodesRequestFailed():
            return state
        case _:
            assert_never(message)


def _specified(state: State, event: NodePoolValidated) -> State:
    valid = event.reason is Validated.VALID
    known = state.pool(event.key, event.uid)
    if known is None:
        pool = Pool(event.key, event.uid, event.zone, event.generation, event.spec, valid)
        return _stored(state, pool)
    pool = replace(known, generation=event.generation, spec=event.spec, valid=valid)
    if valid:
        pool = replace(pool, fault="")
    if pool.stage is Stage.ACTIVE and pool.scaled is not None and pool.target >= pool.scaled:
        pool = replace(pool, removed=None)  # The scale-down under way is taken back.
    return _stored(state, pool)


def _deleting(state: State, pool: Pool | None) -> State:
    if pool is None or pool.stage is not Stage.ACTIVE:
        return state
    return _stored(state, replace(pool, stage=Stage.DELETING))


def _deleted(state: State, pool: Pool | None) -> State:
    return state if pool is None else replace(state, pools=state.pools.delete(pool.key))


def _granted(state: State, pool: Pool | None, verdict: QuotaChecked) -> State:
    if pool is None:
        return state
    # A grant for an older generation is not used, and yet has to be given back.
    pool = replace(pool, outstanding=max(pool.outstanding, verdict.granted))
    if verdict.generation == pool.generation:
        within_quota = verdict.reason is Quota.UNDER
        pool = replace(pool, grant=Grant(verdict.generation, verdict.granted, within_quota))
        if pool.scaled is None and not pool.spec.target_nodes:
            pool = replace(pool, scaled=0)
    return _stored(state, pool)


def _checked(state: State, pool: Pool | None, check: Check | None) -> State:
    return state if pool is None else _stored(state, replace(pool, check=check))


def _repaired(state: State, event: MachineRepaired) -> State:
    machine = state.inventory.machines.get(event.machine_key)
    if machine is None:
        return state
    state = replace(state, inventory=state.inventory.repair(event.machine_key))
    return _offered(state, machine.offering)


def _assigned(state: State, event: CWNodeAssigned) -> State:
    inventory = state.inventory.assign(event.machine_key, event.key, event.assignment)
    assignments = max(state.assignments, event.assignment)
    state = replace(state, inventory=inventory, assignments=assignments)
    pool = state.pools[event.key]
    members = pool.members.put(event.node, Member(event.assignment))
    return _offered(_stored(state, replace(pool, members=members)), pool.offering)


def _left(state: State, event: CWNodeDeleted | CWNodeRegistrationFailed) -> State:
    state = replace(state, inventory=state.inventory.depart(event))
    pool = state.pools.get(event.key)
    member = pool.members.get(event.node, event.assignment) if pool is not None else None
    if pool is not None and member is not None:
        removed = pool.removed
        if removed is not None and pool.is_leaving(member):
            removed += 1
        state = _stored(
            state, replace(pool, members=pool.members.drop(event.node), removed=removed)
        )
    return _offered(state, state.inventory.machines[event.machine_key].offering)


MemberChanged = (
    CWNodeRegistered
    | NodeActivityChanged
    | NodeKept
    | NodeRemovalCancelled
    | NodePreempted
    | PreemptionPending
    | CWNodeDeletionRequestSuccess
)


def _member_changed(state: State, event: MemberChanged) -> State:
    pool = state.pools.get(event.key)
    member = pool.members.get(event.node, event.assignment) if pool is not None else None
    if pool is None or member is None:
        return state
    changed = _changed(member, event)
    if changed is member:
        return state
    return _stored(state, replace(pool, members=pool.members.put(event.node, changed)))


def _changed(member: Member, event: MemberChanged) -> Member:
    match event:
        case CWNodeRegistered():
            return replace(member, registered=True)
        case NodeActivityChanged(active=active):
            return replace(member, active=active)
        case NodeKept(request=request):
            return replace(member, removal=None) if request == member.requests else member
        case NodeRemovalCancelled():
            return replace(member, removal=None)
        case NodePreempted() | PreemptionPending():
            if member.removal is RemovalReason.POOL_DELETED:
                return member
            return replace(member, removal=RemovalReason.PREEMPTED)
        case CWNodeDeletionRequestSuccess(removal=removal, request=request):
            return replace(member, removal=removal, requests=request)
        case _:
            assert_never(event)


Announced = (
    GrantAcknowledged
    | CWNodePoolScaledUp
    | CWNodeRequestQueued
    | CWNodePoolRemoveNodes
    | CWNodePoolNodesRemoved
    | CWNodePoolScaledDown
    | CWNodeDeliverFail
)


def _announced(state: State, event: Announced) -> State:
    pool = state.pools.get(event.key)
    return state if pool is None else _stored(state, _after(pool, event))


def _after(pool: Pool, event: Announced) -> Pool:
    match event:
        case GrantAcknowledged(granted=granted):
            return replace(pool, outstanding=granted)
        case CWNodePoolScaledUp(after=after):
            return replace(pool, scaled=after)
        case CWNodeRequestQueued(granted=granted):
            return replace(pool, scaled=granted) if pool.scaled is None else pool
        case CWNodePoolRemoveNodes():
            return replace(pool, removed=0)
        case CWNodePoolNodesRemoved(removal=removal):
            emptied = removal is RemovalReason.POOL_DELETED
            return replace(pool, stage=Stage.EMPTIED) if emptied else pool
        case CWNodePoolScaledDown(after=after):
            return replace(pool, scaled=after, removed=None)
        case CWNodeDeliverFail(node=node, message=text):
            return pool if node else replace(pool, fault=text)
        case _:
            assert_never(event)


def _stored(state: State, pool: Pool) -> State:
    """The state with this NodePool, in its place among those that wait for machines."""
    known = state.pools.get(pool.key)
    before, after = known.rank if known is not None else None, pool.rank
    state = replace(state, pools=state.pools.set(pool.key, pool))
    if before == after:
        return state
    ranking = state.waiting.get(pool.offering, Ranking()).moved(before, after)
    return replace(state, waiting=state.waiting.set(pool.offering, ranking))


def _offered(state: State, offering: OfferingKey) -> State:
    """An offering is work while a NodePool waits in it and a machine of it is free."""
    is_work = len(state.waiting.get(offering, ())) > 0 and state.inventory.count(offering) > 0
    work = state.work.put(offering) if is_work else state.work.drop(offering)
    return state if work is state.work else replace(state, work=work)
