"""The state of the allocator: NodePools, machines, and the NodePools that wait for machines."""

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from immutables import Map

from allocator import Hears, Says
from allocator.changes import MemberChanged, change_member
from allocator.fills import NO_FILLS, Fills
from allocator.members import NOBODY, Member
from allocator.pool import Announced, Left, Pool, Stage, announce, drop_node, grant, specify
from allocator.supply import NO_SUPPLY, Supply
from nodepool.contract import events as on
from nodepool.contract.commands_spot import ReclaimCapacity, ReturnCapacity
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, offering_key
from nodepool.placement.claims import Check
from nodepool.placement.machines import MachineChanged
from nodepool.placement.placement import Placement
from nodepool.service import Context
from nodepool.state.maps import mark, put
from nodepool.state.values import replace


@dataclass(frozen=True, slots=True)
class State(Placement[Pool]):
    """NodePools, machines, and the supply and demand that follow from them.

    The work queue holds offerings in which a machine may change hands, NodePools with more due
    events than one decision can hold, and failed NodePools and offerings until their retry.

    assignments: how many assignments of machines to NodePools there were.
    supplies: the supply of each offering apart from its stock.
    fills: the positions that were filled in commits stored after what is still to be read.
    """

    pools: Map[PoolKey, Pool] = Map()
    assignments: int = 0
    supplies: Map[OfferingKey, Supply] = Map()
    fills: Fills = NO_FILLS

    def supply(self, offering: OfferingKey) -> Supply:
        """Return the supply of an offering apart from its stock."""
        return self.supplies.get(offering, NO_SUPPLY)


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message.

    A message about a NodePool or a Node that is gone changes no NodePool and no Node.
    """
    fills = state.fills.settle(context)
    if fills is not state.fills:
        state = replace(state, fills=fills)
    if isinstance(message, MemberChanged):
        return _member_changed(state, message, context)
    if isinstance(message, MachineChanged):
        return _machine_changed(state, message)
    if isinstance(message, Announced):
        return _fold_announcement(state, message, context)
    match message:
        case on.NodePoolValidated(key=key, uid=uid):
            return _store_pool(state, specify(state.pool(key, uid), message))
        case on.NodePoolDeleting(key=key, uid=uid):
            return _deleting(state, state.pool(key, uid))
        case on.CWNodePoolDeleted(key=key, uid=uid):
            return _fold_deletion(state, state.pool(key, uid))
        case on.QuotaChecked(key=key, uid=uid):
            return _fold_quota_verdict(state, state.pool(key, uid), message, context)
        case on.QuotaCheckFailed(key=key):
            pool = state.pools.get(key)
            return state if pool is None else _store_pool(state, replace(pool, quota_failed=True))
        case on.CapacityChecked(key=key, uid=uid) | on.CapacityCheckFailed(key=key, uid=uid):
            return _fold_capacity_check(state, state.pool(key, uid), message)
        case on.CWNodeAssigned():
            return _fold_assignment(state, message, context)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return _fold_departure(state, message, context)
        case on.CapacityReclaimed(zone=zone, instance_type=kind, count=count):
            inventory = state.inventory.reclaim(offering_key(zone, kind), count)
            return schedule_offering(replace(state, inventory=inventory), offering_key(zone, kind))
        case on.CapacityReclaimFailed(zone=zone, instance_type=kind):
            failed = state.work.retry_later(offering_key(zone, kind), context.time)
            return replace(state, work=failed)
        case on.CWNodePoolNodesRequestFailed() | ReclaimCapacity() | ReturnCapacity():
            return state
        case _:
            assert_never(message)


def schedule_offering(state: State, offering: OfferingKey) -> State:
    """Return the state in which an offering is work while a machine of it may change hands.

    A free machine may go to a NodePool that waits, or be held back; a spot Node may have to give
    way.
    """
    stock, ranking = state.stock(offering), state.ranking(offering)
    is_work = (
        (len(ranking) > 0 and stock.count > 0)
        or stock.to_reclaim != len(stock.reclaimed)
        or (ranking.has_default and len(state.supply(offering).spot) > 0)
        or len(state.supply(offering).asked) > 0
    )
    work = state.work.put(offering) if is_work else state.work.drop(offering)
    return state if work is state.work else replace(state, work=work)


def _store_pool(state: State, pool: Pool) -> State:
    """Return the state with this NodePool, in its place among those that wait for machines."""
    offering, known, supply = pool.offering, state.pools.get(pool.key), state.supply(pool.offering)
    if known is None and pool.is_spot:
        supply = replace(supply, spot=mark(supply.spot, pool.key, is_in=True))
    if known is not None and (known.surplus > 0) is not (pool.surplus > 0):
        shrinking = mark(supply.shrinking, pool.key, is_in=pool.surplus > 0)
        supply = replace(supply, shrinking=shrinking)
    after = _store_supply(state.with_pool(pool), offering, supply)
    # Machines that were kept for it during its check are no longer kept.
    was_waiting = pool.key in state.ranking(offering).waiting
    is_waiting = pool.key in after.ranking(offering).waiting
    is_freed = was_waiting and not is_waiting and known is not None and known.goal is None
    # If less is needed, a spot Node that was asked to give way may stay.
    is_asked = len(supply.asked) > 0
    is_less = is_asked and after.ranking(offering).demand < state.ranking(offering).demand
    return schedule_offering(after, offering) if is_freed or is_less else after


def _store_supply(state: State, offering: OfferingKey, supply: Supply) -> State:
    if supply is state.supply(offering):
        return state
    known = supply if supply != NO_SUPPLY else None
    return replace(state, supplies=put(state.supplies, offering, known))


def _returning(
    state: State, offering: OfferingKey, key: MachineKey, member: Member, now: datetime
) -> State:
    """Return the state with what is certain of the machine of this Node.

    Once a long drain ends soon enough, a spot Node that was asked to give way may stay; so the
    offering is due then.
    """
    known = state.supply(offering)
    supply = known.with_node(key, member)
    if supply is known:
        return state
    state, due = _store_supply(state, offering, supply), supply.next_look(now)
    if due is None or state.work.is_retried(offering):
        return state
    return replace(state, work=state.work.put_at(offering, due))


def _deleting(state: State, pool: Pool | None) -> State:
    """Return the state in which a deleted NodePool gets no more Nodes."""
    if pool is None or pool.stage is not Stage.ACTIVE:
        return state
    pool = replace(pool, stage=Stage.DELETING, grant=None, check=None, removed=None, undelivered=())
    return _store_pool(state, pool)


def _fold_deletion(state: State, pool: Pool | None) -> State:
    if pool is None:
        return state
    supply = state.supply(pool.offering)
    if pool.key in supply.spot:
        supply = replace(supply, spot=supply.spot.delete(pool.key))
    state = _store_supply(state, pool.offering, supply)
    return replace(state, pools=state.pools.delete(pool.key), work=state.work.drop(pool.key))


def _fold_quota_verdict(
    state: State, pool: Pool | None, verdict: on.QuotaChecked, context: Context
) -> State:
    """Return the state with a grant, unless a deleted NodePool has given the grant back."""
    if pool is None or pool.outstanding is None or pool.stage is not Stage.ACTIVE:
        return state
    after = grant(pool, verdict, context.time)
    if after.wait.lacks > pool.wait.lacks:
        state = replace(state, fills=state.fills.restart(pool.key, context.time))
    is_back = pool.goal is None and after.goal is not None  # Capacity was checked for this grant.
    return (
        schedule_offering(_store_pool(state, after), pool.offering)
        if is_back
        else _store_pool(state, after)
    )


def _fold_capacity_check(
    state: State, pool: Pool | None, event: on.CapacityChecked | on.CapacityCheckFailed
) -> State:
    """Return the state with a capacity check, or without a check if the check failed."""
    if pool is None or pool.stage is not Stage.ACTIVE:
        return state
    check = None
    if isinstance(event, on.CapacityChecked):
        check = Check(event.generation, event.granted, event.since)
        is_renewed = pool.check is not None and pool.check[:3] == check[:3]
        check = check._replace(is_renewed=is_renewed)
    return _store_pool(state, replace(pool, check=check))


def _machine_changed(state: State, event: MachineChanged) -> State:
    """Return the state after a machine changed hands; an unknown machine is not repaired."""
    state = replace(state, inventory=state.inventory.fold_change(event))
    machine = state.inventory.machines.get(event.machine_key)
    return state if machine is None else schedule_offering(state, machine.offering)


def _fold_assignment(state: State, event: on.CWNodeAssigned, context: Context) -> State:
    state, pool = state.with_node(event, state.pools[event.key])
    assert pool is not None
    state = replace(
        state,
        assignments=max(state.assignments, event.assignment),
        fills=_fill(state, event, context.follows),
    )
    domain = state.inventory.machines[event.machine_key].domain
    member = Member(event.assignment, domain=domain, batch=context.position)
    pool = replace(pool, members=pool.members.put(event.node, member))
    return schedule_offering(_store_pool(state, pool), pool.offering)


def _fill(state: State, event: on.CWNodeAssigned, follows: int) -> Fills:
    """Return the fills after an assignment, of which the owner of the position may be another."""
    fills, since = state.fills, event.exchanged or event.since
    if since is not None:
        fills = fills.add(event.key, event.uid, since, follows)
    owner = state.pools.get(PoolKey(event.owner)) if event.owner else None
    if owner is not None and event.since is not None:
        fills = fills.add(owner.key, owner.uid, event.since, follows)
    return fills


def _fold_departure(state: State, event: Left, context: Context) -> State:
    key, machine = event.machine_key, state.inventory.machines[event.machine_key]
    state = replace(state, inventory=state.inventory.depart(event))
    pool = state.pools.get(event.key)
    member = pool.members.get(event.node, event.assignment) if pool is not None else None
    if pool is not None and member is not None:
        pool = drop_node(pool, member, event)
        since = machine.since if isinstance(event, on.CWNodeRegistrationFailed) else None
        if not member.is_reserved:  # A reserved Node was lost when its reservation changed.
            late = state.fills.find_start(pool.key, pool.uid, context.position)
            wait = pool.wait.after_leaving(pool.held, since, context.time, late)
            pool = replace(pool, wait=wait)
        state = _returning(_store_pool(state, pool), pool.offering, key, NOBODY, context.time)
    return schedule_offering(state, machine.offering)


def _member_changed(state: State, event: MemberChanged, context: Context) -> State:
    known = state.pools.get(event.key)
    member = known.members.get(event.node, event.assignment) if known is not None else None
    if known is None or member is None:
        return state
    changed = change_member(member, event, known.removals, context.time)
    if changed is member:
        return state
    pool = replace(known, members=known.members.put(event.node, changed))
    if pool.held < known.held:  # The Node was reserved for the control plane.
        late = state.fills.find_start(pool.key, pool.uid, context.position)
        pool = replace(pool, wait=pool.wait.after_loss(pool.held, context.time, late))
    elif pool.held > known.held:
        pool = replace(pool, wait=pool.wait.after_gain(pool.held))
    state, key = _store_pool(state, pool), event.machine_key
    state = _returning(state, pool.offering, key, changed, context.time)
    if isinstance(event, on.NodePreemptionWithdrawn):
        # Its NodePool chose its victims as if this Node left.
        state = replace(state, work=state.work.put(pool.key))
    is_moved = changed.is_new_supply(member) or pool.held != known.held
    is_enough = changed.comes_anyway(member) and len(state.supply(pool.offering).asked) > 0
    return schedule_offering(state, pool.offering) if is_moved or is_enough else state


def _fold_announcement(state: State, event: Announced, context: Context) -> State:
    """Return the state after an event; a NodePool that failed is tried again until it succeeds."""
    pool = state.pools.get(event.key)
    if pool is None:
        return state
    state, work = _store_pool(state, announce(pool, event)), state.work
    if isinstance(event, on.AllocationFailed):
        return replace(state, work=work.retry_later(event.key, context.time))
    if isinstance(event, on.AllocationRecovered):
        return replace(state, work=work.clear_failures(event.key))
    return state
