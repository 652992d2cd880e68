"""What the allocator knows: NodePools, machines, and the NodePools that wait for machines."""

from dataclasses import dataclass, replace
from typing import assert_never

from immutables import Map

from allocator import Hears, Says
from allocator.changes import (
    Announced,
    Left,
    MemberChanged,
    announced,
    left,
    member_changed,
)
from allocator.members import Member, Members, Racks
from allocator.pool import Check, Grant, Pool, Stage
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
    CWNodeAssigned,
    CWNodeCordoned,
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
    CWNodeUncordoned,
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
from nodepool.contract.keys import OfferingKey, PoolKey, offering_key
from nodepool.service import Context
from nodepool.state.inventory import Inventory
from nodepool.state.racks import domain_of
from nodepool.state.ranking import Ranking
from nodepool.state.work import WithWork


@dataclass(frozen=True, slots=True)
class State(WithWork[OfferingKey | PoolKey]):
    """NodePools, machines, and the NodePools that wait for machines of each offering.

    assignments: how often a machine was assigned to a NodePool.
    work: offerings in which a NodePool waits and a machine is free, NodePools of which one
        decision could not hold all that was missing, and those that failed, when they are retried.
    """

    pools: Map[PoolKey, Pool] = Map()
    inventory: Inventory = Inventory()
    waiting: Map[OfferingKey, Ranking] = Map()
    assignments: int = 0

    def pool(self, key: PoolKey, uid: str) -> Pool | None:
        """The NodePool of this key, if it is the one with this uid."""
        pool = self.pools.get(key)
        return pool if pool is not None and pool.uid == uid else None


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """The state after a message; one about a NodePool or a Node that is gone changes neither."""
    match message:
        case NodePoolValidated():
            return _specified(state, message)
        case NodePoolDeleting() | CWNodePoolDeleted():
            return _deleted(state, message)
        case QuotaChecked(key=key, uid=uid):
            return _granted(state, state.pool(key, uid), message)
        case CapacityChecked(key=key, uid=uid, generation=generation, granted=granted):
            check = Check(generation, granted, message.since)
            return _checked(state, state.pool(key, uid), check)
        case CapacityCheckFailed(key=key, uid=uid):
            pool = state.pool(key, uid) if uid else state.pools.get(key)
            return _checked(state, pool, None)
        case MachineAdded(zone=zone, instance_type=kind):
            state = replace(state, inventory=state.inventory.add(message))
            return _offered(state, offering_key(zone, kind))
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
        case CWNodeCordoned() | CWNodeUncordoned():
            return _member_changed(state, message)
        case CWNodePoolScaledUp() | CWNodeRequestQueued() | GrantAcknowledged():
            return _announced(state, message)
        case CWNodeDeliverFail():
            return _announced(state, message)
        case CWNodePoolRemoveNodes() | CWNodePoolNodesRemoved() | CWNodePoolScaledDown():
            return _announced(state, message)
        case AllocationFailed() | AllocationRecovered():
            return _retried(state, message, context)
        case CWNodePoolNodesRequestFailed():
            return state
        case _:
            assert_never(message)


def _specified(state: State, event: NodePoolValidated) -> State:
    valid = event.reason is Validated.VALID
    fault = event.message if event.fault == "Settings" else ""
    known = state.pool(event.key, event.uid)
    if known is None:
        size = event.spec.rack_size
        members = Members(racks=Racks(size) if size else None)
        known = Pool(
            event.key, event.uid, event.zone, event.generation, event.spec, valid, members=members
        )
    pool = replace(
        known,
        generation=event.generation,
        spec=event.spec,
        valid=valid,
        fault=fault,
        reported=known.reported if fault else "",
    )
    return _stored(state, pool)


def _deleted(state: State, event: NodePoolDeleting | CWNodePoolDeleted) -> State:
    """The state without a NodePool that is gone; one that is to go may have nothing more."""
    pool = state.pool(event.key, event.uid)
    if pool is None:
        return state
    if isinstance(event, CWNodePoolDeleted):
        return replace(state, pools=state.pools.delete(pool.key), work=state.work.drop(pool.key))
    if pool.stage is not Stage.ACTIVE:
        return state
    pool = replace(pool, stage=Stage.DELETING, grant=None, check=None, removed=None, undelivered=())
    return _stored(state, pool)


def _granted(state: State, pool: Pool | None, verdict: QuotaChecked) -> State:
    """The state with a grant; a deleted NodePool has given back what it was granted."""
    if pool is None or pool.outstanding is None or pool.stage is not Stage.ACTIVE:
        return state
    # A grant for an older generation is not used, and yet has to be given back.
    grant = Grant(verdict.generation, verdict.granted, verdict.number)
    pool = replace(pool, grant=grant, outstanding=max(pool.outstanding, grant.nodes))
    if grant.generation == pool.generation and pool.scaled is None and not pool.target:
        pool = replace(pool, scaled=0)
    return _stored(state, pool)


def _checked(state: State, pool: Pool | None, check: Check | None) -> State:
    if pool is None or pool.stage is not Stage.ACTIVE:
        return state
    return _stored(state, replace(pool, check=check))


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
    member = Member(event.assignment, domain=domain_of(event.labels))
    members = pool.members.put(event.node, member)
    return _offered(_stored(state, replace(pool, members=members)), pool.offering)


def _left(state: State, event: Left) -> State:
    state = replace(state, inventory=state.inventory.depart(event))
    pool = state.pools.get(event.key)
    member = pool.members.get(event.node, event.assignment) if pool is not None else None
    if pool is not None and member is not None:
        state = _stored(state, left(pool, member, event))
    return _offered(state, state.inventory.machines[event.machine_key].offering)


def _member_changed(state: State, event: MemberChanged) -> State:
    pool = state.pools.get(event.key)
    member = pool.members.get(event.node, event.assignment) if pool is not None else None
    if pool is None or member is None:
        return state
    changed = member_changed(pool, member, event)
    if changed is member:
        return state
    return _stored(state, replace(pool, members=pool.members.put(event.node, changed)))


def _announced(state: State, event: Announced) -> State:
    pool = state.pools.get(event.key)
    return state if pool is None else _stored(state, announced(pool, event))


def _retried(
    state: State, event: AllocationFailed | AllocationRecovered, context: Context
) -> State:
    """The state with a NodePool that failed due to be reconciled again, until that succeeds."""
    if event.key not in state.pools:
        return state
    state = _announced(state, event)
    if isinstance(event, AllocationFailed):
        return replace(state, work=state.work.failed(event.key, context.time))
    return replace(state, work=state.work.succeeded(event.key))


def _stored(state: State, pool: Pool) -> State:
    """The state with this NodePool, in its place among those that wait for machines."""
    if pool.removed == 0 and not (pool.has_too_many or pool.members.spareable):
        pool = replace(pool, removed=None)  # All its Nodes are kept: nothing was removed.
    known = state.pools.get(pool.key)
    before, after = known.rank if known is not None else None, pool.rank
    state = replace(state, pools=state.pools.set(pool.key, pool))
    if before == after:
        return state
    offering, waiting = pool.offering, state.waiting
    ranking = waiting.get(offering, Ranking()).moved(before, after)
    waiting = waiting.set(offering, ranking) if len(ranking) else waiting.delete(offering)
    return replace(state, waiting=waiting)


def _offered(state: State, offering: OfferingKey) -> State:
    """An offering is work while a NodePool waits in it and a machine of it is free."""
    is_work = len(state.waiting.get(offering, ())) > 0 and state.inventory.count(offering) > 0
    work = state.work.put(offering) if is_work else state.work.drop(offering)
    return state if work is state.work else replace(state, work=work)
