"""The state of the capacity service: machines, clusters, NodePools and demand for offerings."""

from dataclasses import dataclass, replace
from typing import assert_never

from immutables import Map

from capacity import Hears, Says
from capacity.demand import stored, supply_changed
from capacity.holding import (
    assigned,
    cordon_changed,
    giving_way,
    left,
    reservation_changed,
    stocked,
)
from capacity.pool import Offering, Pool, Said, Warned, with_offering
from nodepool.contract import events as on
from nodepool.contract.commands import FindCapacity
from nodepool.contract.conditions import Capacity, Validated
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, offering_key
from nodepool.placement.machines import Inventory
from nodepool.placement.reclaims import outstanding
from nodepool.service import Context
from nodepool.state.work import WithWork

Reclaimed = on.MachineReclaimed | on.MachineReturned | on.CapacityReclaimed


@dataclass(frozen=True, slots=True)
class State(WithWork[OfferingKey | PoolKey]):
    """NodePools, offerings, machines, clusters.

    The work queue holds offerings whose verdicts may change, and NodePools whose check failed.

    healthy: how many machines of each offering are in service, free or not.
    giving_way: the machines of spot Nodes that give way to an operator or to NodePools.
    to_triage: the machines that go to triage when their Nodes leave, for any reason.
    to_reclaim: how many machines of each offering an operator must get in total, including the
        machines that are already held back.
    reserved: the machines of Nodes that are reserved for the control plane.
    zones: the zones in which each organisation has a cluster, in alphabetical order.
    """

    pools: Map[PoolKey, Pool] = Map()
    offerings: Map[OfferingKey, Offering] = Map()
    inventory: Inventory = Inventory()
    healthy: Map[OfferingKey, int] = Map()
    giving_way: Map[OfferingKey, Map[MachineKey, bool]] = Map()
    to_triage: Map[MachineKey, bool] = Map()
    to_reclaim: Map[OfferingKey, int] = Map()
    reserved: Map[MachineKey, bool] = Map()
    zones: Map[str, tuple[str, ...]] = Map()

    def pool(self, key: PoolKey, uid: str) -> Pool | None:
        """Return the NodePool of this key, if it has this uid."""
        pool = self.pools.get(key)
        return pool if pool is not None and pool.uid == uid else None

    def offering(self, key: OfferingKey) -> Offering:
        """Return the demand for this offering, which is empty before a NodePool wants it."""
        return self.offerings.get(key, Offering())

    def outstanding(self, key: OfferingKey) -> int:
        """How many machines an operator is still to have; they go to no NodePool."""
        return outstanding(self.inventory, key, self.to_reclaim.get(key, 0))

    def free(self, key: OfferingKey) -> int:
        """How many machines are free that no operator is to have."""
        return max(0, self.inventory.count(key) - self.outstanding(key))


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message; a message about an unknown NodePool changes no NodePool."""
    match message:
        case on.ClusterRegistered(org=org, zone=zone):
            zones = {*state.zones.get(org, ()), zone}
            return replace(state, zones=state.zones.set(org, tuple(sorted(zones))))
        case on.NodePoolValidated():
            return _specified(state, message)
        case on.QuotaChecked(key=key, uid=uid):
            return _granted(state, state.pool(key, uid), message, context)
        case on.QuotaCheckFailed(key=key):
            return _quota_failed(state, state.pools.get(key))
        case on.CWNodeAssigned():
            return assigned(state, message)
        case on.CWNodeCordoned() | on.CWNodeUncordoned():
            return cordon_changed(state, message)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return left(state, message, context)
        case on.NodePoolDeleting(key=key, uid=uid):
            return _forgotten(state, state.pool(key, uid))
        case on.MachineAdded() | on.MachineRepaired():
            return _available(state, message)
        case on.MachineReclaimed() | on.MachineReturned() | on.CapacityReclaimed():
            return _reclaimed(state, message)
        case on.NodePreemptionRequested():
            return _requested(state, message)
        case on.NodeReservationChanged():
            return reservation_changed(state, message, context)
        case on.CapacityChecked(key=key, uid=uid):
            return _published(state, state.pool(key, uid), message, context)
        case on.CWInsufficientCapacity(key=key):
            return _warned(state, state.pools.get(key))
        case on.CapacityCheckFailed(key=key):
            return _failed(state, state.pools.get(key), context)
        case FindCapacity() | on.CapacityFound():
            return state
        case _:
            assert_never(message)


def _specified(state: State, event: on.NodePoolValidated) -> State:
    pool, spec = state.pool(event.key, event.uid), event.spec
    valid = event.reason is Validated.VALID
    if pool is None:
        # A NodePool that was never valid can get no machine, so the state does not hold it.
        offering = offering_key(event.zone, spec.instance_type)
        size = spec.rack_size
        pool = Pool(event.key, event.uid, offering, event.generation, spec, rack_size=size)
        return stored(state, pool) if valid else state
    said = pool.said if valid else None  # The last verdict is outdated.
    wait = pool.wait.with_target(spec.target, pool.held) if valid else pool.wait
    pool = replace(pool, generation=event.generation, spec=spec, valid=valid, said=said, wait=wait)
    # NodePools behind it may get the machines that it no longer wants.
    return supply_changed(stored(state, pool), pool.offering)


def _granted(
    state: State, before: Pool | None, verdict: on.QuotaChecked, context: Context
) -> State:
    if before is None:
        return state
    before = replace(before, latest_grant=verdict.granted, quota_failed=False)
    if before.generation != verdict.generation:
        return supply_changed(stored(state, before), before.offering)
    nodes = min(verdict.granted, before.spec.target)
    pool = replace(
        before,
        granted=verdict.granted,
        checked=verdict.generation,
        wait=before.wait.with_grant(nodes, before.held, context.time),
    )
    # If it wants more or fewer Nodes now, NodePools behind it may get fewer or more machines.
    return supply_changed(stored(state, pool), pool.offering)


def _quota_failed(state: State, pool: Pool | None) -> State:
    if pool is None:
        return state
    # Other NodePools may get the machines that were kept for it.
    return supply_changed(stored(state, replace(pool, quota_failed=True)), pool.offering)


def _forgotten(state: State, pool: Pool | None) -> State:
    """Return the state without a NodePool that is being deleted; no verdict can revive it."""
    if pool is None:
        return state
    state = stored(state, replace(pool, valid=False))
    offering = state.offering(pool.offering)
    offering = replace(offering, short=offering.short.drop(pool.key))
    state = replace(
        state,
        pools=state.pools.delete(pool.key),
        offerings=with_offering(state.offerings, pool.offering, offering),
        work=state.work.drop(pool.key),
    )
    return supply_changed(state, pool.offering)


def _available(state: State, event: on.MachineAdded | on.MachineRepaired) -> State:
    """Return the state with a new or repaired machine; an unknown machine is not repaired."""
    state = stocked(state, event.machine_key, state.inventory.changed(event))
    machine = state.inventory.machines.get(event.machine_key)
    return state if machine is None else supply_changed(state, machine.offering)


def _reclaimed(state: State, event: Reclaimed) -> State:
    if isinstance(event, on.CapacityReclaimed):
        offering = offering_key(event.zone, event.instance_type)
        to_reclaim = state.to_reclaim.set(offering, event.count)
        return supply_changed(replace(state, to_reclaim=to_reclaim), offering)
    state = stocked(state, event.machine_key, state.inventory.changed(event))
    return supply_changed(state, state.inventory.machines[event.machine_key].offering)


def _requested(state: State, event: on.NodePreemptionRequested) -> State:
    """Return the state with a Node that gives way, unless the Node is gone already."""
    machine = state.inventory.machines.get(event.machine_key)
    if machine is None or machine.holder != event.key or machine.assignment != event.assignment:
        return state
    return giving_way(state, event.machine_key, gives_way=True)


def _published(
    state: State, pool: Pool | None, verdict: on.CapacityChecked, context: Context
) -> State:
    if pool is None:
        return state
    enough = verdict.reason is Capacity.SUFFICIENT
    offering = state.offering(pool.offering)
    short = offering.short.drop(pool.key) if enough else offering.short.put(pool.key)
    renewed = context.time if pool.rack_size else None
    offering = replace(offering, short=short, renewed=renewed)
    pool = replace(pool, said=Said.by(verdict, pool), warned=None if enough else pool.warned)
    return replace(
        state,
        pools=state.pools.set(pool.key, pool),
        offerings=with_offering(state.offerings, pool.offering, offering),
        work=state.work.succeeded(pool.key),
    )


def _failed(state: State, pool: Pool | None, context: Context) -> State:
    """Return the state in which a check is made again, and its verdict always published."""
    if pool is None:
        return state
    state = stored(state, replace(pool, said=None))
    offering = state.offering(pool.offering)
    offering = replace(offering, short=offering.short.put(pool.key))
    offerings = with_offering(state.offerings, pool.offering, offering)
    state = replace(state, offerings=offerings)
    if pool.is_rechecked:  # Other NodePools may get the machines that were kept for it.
        state = supply_changed(state, pool.offering)
    return replace(state, work=state.work.failed(pool.key, context.time))


def _warned(state: State, pool: Pool | None) -> State:
    if pool is None or pool.said is None:
        return state
    pool = replace(pool, warned=Warned(pool.said.reason, pool.allowed))
    return replace(state, pools=state.pools.set(pool.key, pool))
