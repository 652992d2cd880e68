"""The state of the capacity service: machines, NodePools, and the demand for each offering."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from immutables import Map

from capacity import Hears, Says
from nodepool.contract.conditions import Capacity, Validated
from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CWInsufficientCapacity,
    CWNodeAssigned,
    CWNodeDeleted,
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
class Said:
    """What the last verdict on a NodePool said, as far as another one would differ from it.

    generation, granted: what was checked.
    reason: the reason of the condition.
    wanted, available: the numbers in its message; 0 where it has none.
    """

    generation: int
    granted: int
    reason: Capacity
    wanted: int = 0
    available: int = 0

    @classmethod
    def of(
        cls, generation: int, granted: int, reason: Capacity, wanted: int, available: int
    ) -> "Said":
        """What a verdict of these numbers says."""
        if reason is Capacity.SUFFICIENT:
            return cls(generation, granted, reason)
        return cls(generation, granted, reason, wanted, available)


@dataclass(frozen=True, slots=True)
class Warned:
    """What the last `CWInsufficientCapacity` was about: its reason, and the Nodes wanted in all."""

    reason: Capacity
    allowed: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool that stays, as far as its capacity depends on it.

    offering: the machines that it can be given.
    generation, spec, valid: its desired state, and whether that can be delivered.
    checked: the generation that its quota was checked for last; 0 before the first time.
    granted: how many Nodes it may have.
    held: the Nodes that it has.
    since: since when it has wanted the Nodes that it lacks; None before its first quota check.
    said: the verdict that was published last; None before the first, and after a check that failed.
    warned: the last warning; None while there are machines enough.
    """

    key: PoolKey
    uid: str
    offering: OfferingKey
    generation: int
    spec: NodePoolSpec
    valid: bool = True
    checked: int = 0
    granted: int = 0
    held: int = 0
    since: datetime | None = None
    said: Said | None = None
    warned: Warned | None = None

    @property
    def allowed(self) -> int:
        """How many Nodes it wants to have and may have."""
        return min(self.granted, self.spec.target_nodes)

    @property
    def missing(self) -> int:
        """How many Nodes it has not got of those it is allowed."""
        return max(0, self.allowed - self.held)

    @property
    def may_grow(self) -> bool:
        """Whether it is valid, and quota was checked for what it wants now."""
        return self.valid and self.checked == self.generation

    @property
    def shortfall(self) -> int:
        """How many Nodes it still wants."""
        return self.missing if self.may_grow else 0

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
    short: the NodePools whose last verdict is that there are not enough machines.
    """

    waiting: Ranking = Ranking()
    demand: int = 0
    restricted: int = 0
    short: Queue[PoolKey] = Queue()

    @property
    def is_quiet(self) -> bool:
        """Whether no NodePool waits for it or has to hear that it waits no more."""
        return not len(self.waiting) and not len(self.short)


@dataclass(frozen=True, slots=True)
class State(WithWork[OfferingKey | PoolKey]):
    """NodePools, offerings, machines.

    The work queue holds offerings whose verdicts may change, and NodePools whose check failed.
    """

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
            return _forgotten(state, state.pool(key, uid))
        case MachineAdded(zone=zone, instance_type=instance_type):
            state = replace(state, inventory=state.inventory.add(message))
            return _supply_changed(state, offering_key(zone, instance_type))
        case MachineRepaired(machine_key=machine):
            return _repaired(state, machine)
        case CapacityChecked(key=key, uid=uid):
            return _published(state, state.pool(key, uid), message)
        case CWInsufficientCapacity(key=key):
            return _warned(state, state.pools.get(key))
        case CapacityCheckFailed(key=key):
            return _failed(state, state.pools.get(key), context)
        case _:
            assert_never(message)


def _specified(state: State, event: NodePoolValidated) -> State:
    pool, spec = state.pool(event.key, event.uid), event.spec
    valid = event.reason is Validated.VALID
    if pool is None:
        # One that was never valid can be given nothing, so nothing is kept of it.
        offering = offering_key(event.zone, spec.instance_type)
        pool = Pool(event.key, event.uid, offering, event.generation, spec)
        return _stored(state, pool) if valid else state
    pool = replace(pool, generation=event.generation, spec=spec, valid=valid)
    # Those behind it may have what it wants no more.
    return _supply_changed(_stored(state, pool), pool.offering)


def _granted(state: State, before: Pool | None, verdict: QuotaChecked, context: Context) -> State:
    if before is None or before.generation != verdict.generation:
        return state
    pool = replace(before, granted=verdict.granted, checked=verdict.generation)
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


def _forgotten(state: State, pool: Pool | None) -> State:
    """The state without a NodePool that goes: it wants nothing, and no verdict can revive it."""
    if pool is None:
        return state
    state = _stored(state, replace(pool, valid=False))
    offering = state.offering(pool.offering)
    offering = replace(offering, short=offering.short.drop(pool.key))
    state = replace(
        state,
        pools=state.pools.delete(pool.key),
        offerings=_with_offering(state, pool.offering, offering),
        work=state.work.drop(pool.key),
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
    offering = state.offering(pool.offering)
    short = offering.short.drop(pool.key) if enough else offering.short.put(pool.key)
    said = Said.of(
        verdict.generation, verdict.granted, verdict.reason, verdict.wanted, verdict.available
    )
    pool = replace(pool, said=said, warned=None if enough else pool.warned)
    return replace(
        state,
        pools=state.pools.set(pool.key, pool),
        offerings=_with_offering(state, pool.offering, replace(offering, short=short)),
        work=state.work.succeeded(pool.key),
    )


def _failed(state: State, pool: Pool | None, context: Context) -> State:
    """The state in which a check is made again, and its verdict said whatever it is."""
    if pool is None:
        return state
    pools = state.pools.set(pool.key, replace(pool, said=None))
    return replace(state, pools=pools, work=state.work.failed(pool.key, context.time))


def _warned(state: State, pool: Pool | None) -> State:
    if pool is None or pool.said is None:
        return state
    pool = replace(pool, warned=Warned(pool.said.reason, pool.allowed))
    return replace(state, pools=state.pools.set(pool.key, pool))


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
        offerings=_with_offering(state, pool.offering, offering),
    )


def _with_offering(
    state: State, key: OfferingKey, offering: Offering
) -> Map[OfferingKey, Offering]:
    """The offerings with this one; nothing is kept of a quiet one."""
    if not offering.is_quiet:
        return state.offerings.set(key, offering)
    return state.offerings.delete(key) if key in state.offerings else state.offerings


def _supply_changed(state: State, key: OfferingKey) -> State:
    """The state with the offering in the work queue, if a verdict may change.

    Machines come and go in large numbers, so verdicts follow once, at the next `Wake`.
    """
    offering = state.offering(key)
    if offering.is_quiet:
        return state
    enough = state.inventory.count(key) >= offering.demand and not offering.restricted
    if enough and not len(offering.short):
        return state
    return replace(state, work=state.work.put(key))
