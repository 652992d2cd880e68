"""The state of the capacity service: machines, NodePools, and the demand for each offering."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from immutables import Map

from capacity import Hears, Says
from nodepool.contract.conditions import Capacity, Quota, Validated
from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CWInsufficientCapacity,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
)
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, offering_key
from nodepool.contract.model import NodePoolSpec
from nodepool.service import Context
from nodepool.state.inventory import Inventory
from nodepool.state.queue import Queue
from nodepool.state.ranking import Rank, Ranking, rank
from nodepool.state.work import WithWork


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool as far as its capacity depends on it.

    offering: the machines that it can be given.
    generation, spec: its desired state.
    checked: whether its quota was checked for this generation; until then it wants nothing.
    granted: how many Nodes it may have.
    within_quota: whether that is its whole target.
    held: the Nodes that it has.
    since: since when it has wanted the Nodes that it lacks; None before its first quota check.
    reason, available: the verdict that was published last; no reason before the first.
    warned: the reason of the last `CWInsufficientCapacity`; None while there is enough.
    """

    key: PoolKey
    uid: str
    offering: OfferingKey
    generation: int
    spec: NodePoolSpec
    checked: bool = False
    granted: int = 0
    within_quota: bool = False
    held: int = 0
    since: datetime | None = None
    reason: Capacity | None = None
    available: int = 0
    warned: Capacity | None = None

    @property
    def missing(self) -> int:
        """How many Nodes it has not got of those it was granted."""
        return max(0, self.granted - self.held)

    @property
    def shortfall(self) -> int:
        """How many Nodes it still wants."""
        return self.missing if self.checked and self.within_quota else 0

    @property
    def place(self) -> Rank | None:
        """Its place among those that wait for the offering; None where it wants no more Nodes."""
        if not self.shortfall:
            return None
        assert self.since is not None, f"{self.key} wants Nodes before its quota was checked"
        return rank(self.spec, self.since, self.key)

    @property
    def restricted(self) -> bool:
        """Whether it wants Nodes and an affinity says which."""
        return self.shortfall > 0 and self.spec.affinity is not None


@dataclass(frozen=True, slots=True)
class Offering:
    """The demand for the machines of one type in one zone.

    waiting: the NodePools that want machines, first to be served first.
    demand: how many machines they want in all.
    restricted: how many of them have an affinity.
    short: the NodePools whose last verdict is that there are not enough.
    """

    waiting: Ranking = Ranking()
    demand: int = 0
    restricted: int = 0
    short: Queue[PoolKey] = Queue()


@dataclass(frozen=True, slots=True)
class State(WithWork[OfferingKey]):
    """NodePools, offerings, machines; the work queue holds offerings whose verdicts may change."""

    pools: Map[PoolKey, Pool] = Map()
    offerings: Map[OfferingKey, Offering] = Map()
    inventory: Inventory = Inventory()

    def pool(self, key: PoolKey, uid: str) -> Pool | None:
        """The NodePool of this key, if it is the one with this uid."""
        pool = self.pools.get(key)
        return pool if pool is not None and pool.uid == uid else None

    def offering(self, key: OfferingKey) -> Offering:
        """The demand for this offering; none before a NodePool wants it."""
        return self.offerings.get(key, Offering())


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """The state after a message; a message about an unknown NodePool changes no NodePool."""
    match message:
        case NodePoolValidated():
            return _specified(state, message)
        case QuotaChecked(key=key, uid=uid):
            return _granted(state, state.pool(key, uid), message, context)
        case CWNodeAssigned(machine_key=machine, assignment=assignment):
            inventory = state.inventory.assign(machine, message.key, assignment)
            return _held(replace(state, inventory=inventory), message, machine, 1)
        case CWNodeDeleted(machine_key=machine) | CWNodeRegistrationFailed(machine_key=machine):
            state = replace(state, inventory=state.inventory.depart(message))
            return _held(state, message, machine, -1)
        case NodePoolDeleting(key=key, uid=uid):
            pool = state.pool(key, uid)
            return state if pool is None else _stored(state, replace(pool, checked=False))
        case CWNodePoolDeleted(key=key):
            return _deleted(state, state.pools.get(key))
        case MachineAdded(zone=zone, instance_type=instance_type):
            state = replace(state, inventory=state.inventory.add(message))
            return _supply_changed(state, offering_key(zone, instance_type))
        case MachineRepaired(machine_key=machine):
            return _repaired(state, machine)
        case CapacityChecked(key=key):
            return _published(state, state.pools.get(key), message)
        case CWInsufficientCapacity(key=key):
            return _warned(state, state.pools.get(key))
        case CapacityCheckFailed():
            return state
        case _:
            assert_never(message)


def _specified(state: State, event: NodePoolValidated) -> State:
    pool, spec = state.pool(event.key, event.uid), event.spec
    if pool is None:
        offering = offering_key(event.zone, spec.instance_type)
        return _stored(state, Pool(event.key, event.uid, offering, event.generation, spec))
    # A changed spec waits for its quota check: until then nothing is wanted for it.
    same = event.generation == pool.generation
    checked = pool.checked and same and event.reason is Validated.VALID
    return _stored(state, replace(pool, generation=event.generation, spec=spec, checked=checked))


def _granted(state: State, before: Pool | None, verdict: QuotaChecked, context: Context) -> State:
    if before is None or before.generation != verdict.generation:
        return state
    within = verdict.reason is Quota.UNDER
    pool = replace(before, granted=verdict.granted, checked=True, within_quota=within)
    # A NodePool that wants no more than before keeps its place among those that wait.
    if before.since is None or not before.missing or pool.missing > before.missing:
        pool = replace(pool, since=context.time)
    # Whether it wants more or fewer Nodes now, those behind it could have others than before.
    return _supply_changed(_stored(state, pool), pool.offering)


def _held(
    state: State,
    event: CWNodeAssigned | CWNodeDeleted | CWNodeRegistrationFailed,
    machine: MachineKey,
    change: int,
) -> State:
    pool = state.pool(event.key, event.uid)
    if pool is not None:
        assert pool.held + change >= 0, f"{pool.key} holds fewer than no Nodes"
        state = _stored(state, replace(pool, held=pool.held + change))
    return _supply_changed(state, state.inventory.machines[machine].offering)


def _deleted(state: State, pool: Pool | None) -> State:
    if pool is None:
        return state
    state = _stored(state, replace(pool, checked=False))
    offering = state.offerings[pool.offering]
    offering = replace(offering, short=offering.short.drop(pool.key))
    state = replace(
        state,
        pools=state.pools.delete(pool.key),
        offerings=state.offerings.set(pool.offering, offering),
    )
    return _supply_changed(state, pool.offering)


def _repaired(state: State, key: MachineKey) -> State:
    machine = state.inventory.machines.get(key)
    if machine is None:
        return state
    state = replace(state, inventory=state.inventory.repair(key))
    return _supply_changed(state, machine.offering)


def _published(state: State, pool: Pool | None, verdict: CapacityChecked) -> State:
    if pool is None:
        return state
    enough = verdict.reason is Capacity.SUFFICIENT
    offering = state.offerings[pool.offering]
    short = offering.short.drop(pool.key) if enough else offering.short.put(pool.key)
    pool = replace(
        pool,
        reason=verdict.reason,
        available=verdict.available,
        warned=None if enough else pool.warned,
    )
    return replace(
        state,
        pools=state.pools.set(pool.key, pool),
        offerings=state.offerings.set(pool.offering, replace(offering, short=short)),
    )


def _warned(state: State, pool: Pool | None) -> State:
    if pool is None:
        return state
    return replace(state, pools=state.pools.set(pool.key, replace(pool, warned=pool.reason)))


def _stored(state: State, pool: Pool) -> State:
    """The state with this NodePool, and the demand for its offering in step with it."""
    before = state.pools.get(pool.key)
    offering = state.offering(pool.offering)
    offering = replace(
        offering,
        waiting=offering.waiting.moved(before.place if before else None, pool.place),
        demand=offering.demand + pool.shortfall - (before.shortfall if before else 0),
        restricted=offering.restricted + pool.restricted - (before.restricted if before else False),
    )
    return replace(
        state,
        pools=state.pools.set(pool.key, pool),
        offerings=state.offerings.set(pool.offering, offering),
    )


def _supply_changed(state: State, key: OfferingKey) -> State:
    """The state with the offering in the work queue, if a verdict may change.

    Machines come and go in large numbers, so verdicts follow once, at the next `Wake`.
    """
    offering = state.offering(key)
    if not len(offering.waiting) and not len(offering.short):
        return state
    enough = state.inventory.count(key) >= offering.demand and not offering.restricted
    if enough and not len(offering.short):
        return state
    return replace(state, work=state.work.put(key))
