"""The state of the capacity service: machines, clusters, NodePools and the verdicts on them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, assert_never

from immutables import Map

from capacity import Hears, Says
from capacity.giving_way import GivesWay, fold_preemption
from capacity.leaving import NO_KEYS, NOBODY_LEAVES, Keys, Leaving, NodeChanged
from capacity.pool import Pool
from capacity.renewals import schedule
from nodepool.contract import events as on
from nodepool.contract.commands import FindCapacity
from nodepool.contract.conditions import Capacity, Validated
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, offering_key
from nodepool.placement.claims import Check
from nodepool.placement.machines import MachineChanged
from nodepool.placement.placement import Placement
from nodepool.placement.racks import change_count
from nodepool.service import Context
from nodepool.state.maps import mark, put
from nodepool.state.queue import Queue
from nodepool.state.values import replace

NO_POOLS: Final[Queue[PoolKey]] = Queue()


@dataclass(frozen=True, slots=True)
class State(Placement[Pool]):
    """NodePools, machines, clusters.

    The work queue holds offerings whose verdicts may change, and NodePools whose check failed.

    short: the NodePools of each offering whose last verdict is that there are not enough machines,
        or whose last check failed.
    renewed: when the last verdict on each offering was published, for types that come in racks.
    giving_way: the machines of spot Nodes that are preempted, for others or by command, and whether
        the preemption of each has begun.
    leaving: what is known of Nodes that leave for other reasons.
    reserved: the machines of Nodes that are reserved for the control plane.
    zones: the zones in which each organisation has a cluster, in alphabetical order.
    """

    pools: Map[PoolKey, Pool] = Map()
    short: Map[OfferingKey, Queue[PoolKey]] = Map()
    renewed: Map[OfferingKey, datetime] = Map()
    giving_way: Map[OfferingKey, Keys] = Map()
    leaving: Leaving = NOBODY_LEAVES
    reserved: Keys = NO_KEYS
    zones: Map[str, tuple[str, ...]] = Map()


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message; a message about an unknown NodePool changes no NodePool."""
    if isinstance(message, MachineChanged):
        state = replace(state, inventory=state.inventory.fold_change(message))
        return _change_supply(state, message.machine_key, context.time)
    match message:
        case on.ClusterRegistered(org=org, zone=zone):
            zones = {*state.zones.get(org, ()), zone}
            return replace(state, zones=state.zones.set(org, tuple(sorted(zones))))
        case on.NodePoolValidated():
            return _fold_spec(state, message, context)
        case on.QuotaChecked(key=key, uid=uid):
            return _fold_quota_verdict(state, state.pool(key, uid), message, context)
        case on.QuotaCheckFailed(key=key):
            pool = state.pools.get(key)
            if pool is None:
                return state
            return _store_pool(state, replace(pool, quota_failed=True), context.time)
        case on.CWNodeAssigned(key=key, uid=uid):
            state, pool = state.with_node(message, state.pool(key, uid))
            return _change_held(state, pool, message.machine_key, 1, context.time)
        case (
            on.NodeUpdated()
            | on.NodeActivityChanged()
            | on.CWNodeCordoned()
            | on.CWNodeUncordoned()
        ):
            return _fold_leaving(state, message, context)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return _fold_departure(state, message, context)
        case on.NodePoolDeleting(key=key, uid=uid):
            return _fold_deletion(state, state.pool(key, uid), context.time)
        case on.CapacityReclaimed():
            offering = offering_key(message.zone, message.instance_type)
            inventory = state.inventory.reclaim(offering, message.count)
            return supply_changed(replace(state, inventory=inventory), offering, context.time)
        case on.NodePreemptionRequested() | on.PreemptionPending():
            return _giving_way(state, message.machine_key, context.time, message)
        case on.NodePreempted() | on.NodePreemptionWithdrawn():
            return _giving_way(state, message.machine_key, context.time, message)
        case on.NodeReservationChanged():
            return _fold_reservation(state, message, context)
        case on.CapacityChecked(key=key, uid=uid):
            return _fold_capacity_verdict(state, state.pool(key, uid), message, context)
        case on.CWInsufficientCapacity(key=key):
            return _fold_warning(state, state.pools.get(key))
        case on.CapacityCheckFailed(key=key):
            return _fold_failure(state, state.pools.get(key), context)
        case FindCapacity() | on.CapacityFound():
            return state
        case _:
            assert_never(message)


def supply_changed(state: State, key: OfferingKey, now: datetime) -> State:
    """Return the state with the offering in the work queue, if a verdict may change.

    Machines come and go in large numbers, so verdicts follow once, at the next `Wake` or later.
    """
    ranking, is_short = state.ranking(key), key in state.short
    is_enough = state.stock(key).free_for_pools >= ranking.demand and not ranking.choosy
    if not is_short and (is_enough or not len(ranking)):
        return state
    renewed = state.renewed.get(key)
    work = schedule(state.work, key, len(ranking), renewed, now, is_short=is_short)
    return replace(state, work=work)


def _store_pool(state: State, pool: Pool, now: datetime) -> State:
    """Return the state with this NodePool; NodePools behind it may get other machines."""
    return supply_changed(state.with_pool(pool), pool.offering, now)


def _change_supply(state: State, key: MachineKey, now: datetime) -> State:
    machine = state.inventory.machines.get(key)
    return state if machine is None else supply_changed(state, machine.offering, now)


def _fold_spec(state: State, event: on.NodePoolValidated, context: Context) -> State:
    known, valid = state.pool(event.key, event.uid), event.reason is Validated.VALID
    if known is None:
        # A NodePool that was never valid can get no machine, so the state does not hold it.
        pool = Pool(event.key, event.uid, event.zone, event.generation, event.spec, valid)
        return state.with_pool(pool) if valid else state
    pool = known.with_spec(event.generation, event.spec, event.reason)
    return _store_pool(state, pool if valid else replace(pool, said=None), context.time)


def _fold_quota_verdict(
    state: State, known: Pool | None, verdict: on.QuotaChecked, context: Context
) -> State:
    if known is None:
        return state
    pool = known.with_grant(verdict, context.time)
    if verdict.generation == pool.generation:
        pool = replace(pool, check=Check(verdict.generation, verdict.granted))
    return _store_pool(state, pool, context.time)


def _fold_deletion(state: State, pool: Pool | None, now: datetime) -> State:
    """Return the state without a NodePool that is being deleted; no verdict can revive it."""
    if pool is None:
        return state
    state = state.with_pool(replace(pool, valid=False))
    state = replace(state, pools=state.pools.delete(pool.key), work=state.work.drop(pool.key))
    return supply_changed(_short(state, pool, is_short=False), pool.offering, now)


def _short(state: State, pool: Pool, *, is_short: bool) -> State:
    """Return the state in which a NodePool is among the NodePools that are short, or is not."""
    short = state.short.get(pool.offering, NO_POOLS)
    short = short.put(pool.key) if is_short else short.drop(pool.key)
    return replace(state, short=put(state.short, pool.offering, short if len(short) else None))


# Which machines NodePools hold.


def _is_held(state: State, event: GivesWay | NodeChanged) -> bool:
    """Return whether the Node of an event is still there."""
    machine = state.inventory.machines.get(event.machine_key)
    stay = (machine.holder, machine.assignment) if machine is not None else None
    return stay == (event.key, event.assignment)


def _change_held(
    state: State, pool: Pool | None, key: MachineKey, change: int, now: datetime
) -> State:
    machine = state.inventory.machines[key]
    if pool is not None:
        assert pool.held + change >= 0, f"{pool.key} holds fewer than no Nodes"
        domains, leaving = change_count(pool.domains, machine.domain, change), pool.leaving
        if key in state.leaving.surplus:
            leaving = change_count(leaving, machine.domain, change)
        state = state.with_pool(replace(pool, domains=domains, leaving=leaving))
    return supply_changed(state, machine.offering, now)


def _fold_departure(
    state: State, event: on.CWNodeDeleted | on.CWNodeRegistrationFailed, context: Context
) -> State:
    """Return the state without a Node, whose NodePool waits for another one from now on.

    The failure of a machine that never joined changes no position.
    """
    key, pool = event.machine_key, state.pool(event.key, event.uid)
    failed = isinstance(event, on.CWNodeRegistrationFailed)
    since = state.inventory.machines[key].since if failed else None
    state = replace(state, inventory=state.inventory.depart(event))
    offering = state.inventory.machines[key].offering
    state, leaving = (
        _giving_way(state, key, context.time, None),
        state.leaving.without(offering, key),
    )
    if key in state.reserved:  # No NodePool held it.
        state = replace(state, reserved=state.reserved.delete(key), leaving=leaving)
        return _change_supply(state, key, context.time)
    if pool is not None:
        wait = pool.wait.after_leaving(pool.held - 1, since, context.time)
        pool = replace(pool, wait=wait)
    return replace(_change_held(state, pool, key, -1, context.time), leaving=leaving)


def _fold_reservation(state: State, event: on.NodeReservationChanged, context: Context) -> State:
    """Return the state in which a NodePool holds a Node no more, or holds it again."""
    key, pool = event.machine_key, state.pools.get(event.key)
    machine = state.inventory.machines.get(key)
    is_current = machine is not None and machine.assignment == event.assignment and machine.holder
    if not is_current or event.usable is (key not in state.reserved):
        return state
    change = 1 if event.usable else -1
    state = replace(state, reserved=mark(state.reserved, key, is_in=not event.usable))
    if pool is not None:
        held, wait = pool.held + change, pool.wait
        wait = wait.after_gain(held) if event.usable else wait.after_loss(held, context.time)
        pool = replace(pool, wait=wait)
    return _change_held(state, pool, key, change, context.time)


def _fold_leaving(state: State, event: NodeChanged, context: Context) -> State:
    """Return the state in which a Node leaves, or its machine goes to triage, or not."""
    key, before = event.machine_key, state.leaving
    machine = state.inventory.machines.get(key)
    if machine is None:
        return state
    after = before.fold(offering := machine.offering, event)
    if after is before or not _is_held(state, event):
        return state
    state, pool = replace(state, leaving=after), state.pools.get(event.key)
    if after.surplus is not before.surplus and pool is not None and key not in state.reserved:
        change = 1 if key in after.surplus else -1
        leaving = change_count(pool.leaving, machine.domain, change)
        return _store_pool(state, replace(pool, leaving=leaving), context.time)
    old, new = ((key in each.to_triage, each.is_lost(offering, key)) for each in (before, after))
    return state if old == new else supply_changed(state, offering, context.time)


def _giving_way(state: State, key: MachineKey, now: datetime, event: GivesWay | None) -> State:
    """Return the state after a step of a preemption; None for the end of the stay."""
    machine = state.inventory.machines.get(key)
    if machine is None or (event is not None and not _is_held(state, event)):
        return state
    before = state.giving_way.get(machine.offering, NO_KEYS)
    after = fold_preemption(before, key, event)
    if after is before:
        return state
    giving_way = put(state.giving_way, machine.offering, after if len(after) else None)
    return _change_supply(replace(state, giving_way=giving_way), key, now)


# What was published.


def _fold_capacity_verdict(
    state: State, pool: Pool | None, verdict: on.CapacityChecked, context: Context
) -> State:
    if pool is None:
        return state
    is_enough = verdict.reason is Capacity.SUFFICIENT
    pool = replace(pool, said=verdict)
    if is_enough:
        pool = replace(pool, warned=None, lacked=Map())
    state = _short(state, pool, is_short=not is_enough)
    renewed = state.renewed
    if pool.rack_size > 1:
        renewed = renewed.set(pool.offering, context.time)
    pools, work = state.pools.set(pool.key, pool), state.work.clear_failures(pool.key)
    return replace(state, pools=pools, work=work, renewed=renewed)


def _fold_failure(state: State, pool: Pool | None, context: Context) -> State:
    """Return the state in which a check is made again, and its verdict always published."""
    if pool is None:
        return state
    is_kept = pool.goal is None and pool.claimed is not None
    pool = replace(pool, said=None)
    state = _short(state.with_pool(pool), pool, is_short=True)
    if is_kept:  # Other NodePools may get the machines that were kept for it.
        state = supply_changed(state, pool.offering, context.time)
    return replace(state, work=state.work.retry_later(pool.key, context.time))


def _fold_warning(state: State, pool: Pool | None) -> State:
    if pool is None or pool.said is None:
        return state
    return replace(state, pools=state.pools.set(pool.key, pool.with_warning(pool.said)))
