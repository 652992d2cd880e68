"""Tells each NodePool how many of the Nodes it still wants could be had now."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from immutables import Map
from nodepool.state.persistent import Queue

from nodepool.contract.conditions import HEALTHY, Capacity, Quota, Validated
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
    Wake,
)
from nodepool.contract.keys import FLEET, UNNAMED
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePoolSpec
from nodepool.service import IMMEDIATELY, OUTPUTS_MAX, Context, Failure, Service
from nodepool.state.inventory import Inventory, Rank, offering, rank

Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | QuotaChecked
    | CWNodeAssigned
    | CWNodeDeleted
    | CWNodeRegistrationFailed
    | CWNodePoolDeleted
    | MachineAdded
    | MachineRepaired
    | Wake
)
Says = CapacityChecked | CapacityCheckFailed | CWInsufficientCapacity

VERDICTS_MAX = OUTPUTS_MAX // 2
"""How many verdicts one decision may change; each may come with an event beside it."""
ENOUGH = (Capacity.SUFFICIENT, 0)


@dataclass(frozen=True, slots=True)
class Pool:
    """What a NodePool is granted and holds, and what it was told last."""

    of: tuple[str, str, str]
    uid: str
    offering: str
    generation: int
    spec: NodePoolSpec
    judged: bool
    granted: int = 0
    within_quota: bool = False
    held: int = 0
    since: datetime = IMMEDIATELY
    reason: Capacity | None = None
    available: int = 0

    @property
    def missing(self) -> int:
        """How many Nodes it has not got of those it was granted."""
        return max(0, self.granted - self.held)

    @property
    def shortfall(self) -> int:
        """How many Nodes it still wants."""
        return self.missing if self.judged and self.within_quota else 0


@dataclass(frozen=True, slots=True)
class Offering:
    """The NodePools that want machines of one type in one zone, first to be served first.

    `demand` is what they want in all, `picky` how many of them name an affinity, `short` those
    that were told there is not enough.
    """

    waiting: tuple[Rank, ...] = ()
    demand: int = 0
    picky: int = 0
    short: Queue = Queue()


@dataclass(frozen=True, slots=True)
class State:
    """NodePools, machines, and the offerings to be looked at again when a `Wake` comes."""

    pools: Map[str, Pool] = Map()
    offerings: Map[str, Offering] = Map()
    inventory: Inventory = Inventory()
    again: Queue = Queue()
    looking: str = ""


def wakes(state: State) -> datetime | None:
    """At once while an offering is to be looked at again."""
    return IMMEDIATELY if len(state.again) else None


def evolve(state: State, message: Message, now: Context) -> State:
    """Folds wishes, grants, and the coming and going of machines."""
    match message:
        case NodePoolValidated():
            return _wished(state, message)
        case QuotaChecked(key=key) if _is(state, key, message.uid):
            return _granted(state, key, message, now)
        case CWNodeAssigned():
            return _assigned(state, message)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _left(state, message)
        case NodePoolDeleting(key=key, uid=uid) if _is(state, key, uid):
            return _stored(state, key, replace(state.pools[key], judged=False))
        case CWNodePoolDeleted(key=key) if key in state.pools:
            return _forgotten(state, key)
        case MachineAdded():
            state = replace(state, inventory=state.inventory.add(message))
            return _again(state, offering(message.zone, message.instance_type))
        case MachineRepaired(machine_key=key) if key in state.inventory.machines:
            state = replace(state, inventory=state.inventory.repair(key))
            return _again(state, state.inventory.machines[key].offering)
        case CapacityChecked(key=key) if key in state.pools:
            return _told(state, key, message)
        case Wake():
            looking = next(iter(state.again), "")
            return replace(state, looking=looking, again=state.again.drop(looking))
    return state


def _is(state: State, key: str, uid: str) -> bool:
    pool = state.pools.get(key)
    return pool is not None and pool.uid == uid


def _stored(state: State, key: str, pool: Pool) -> State:
    """The state with this NodePool, in its place among those who wait."""
    before = state.pools.get(key)
    place = state.offerings.get(pool.offering, Offering())
    waiting = place.waiting
    old = _rank(before, key) if before is not None and before.shortfall else None
    new = _rank(pool, key) if pool.shortfall else None
    if old != new:
        ranks = list(waiting)
        if old is not None:
            del ranks[bisect_left(ranks, old)]
        if new is not None:
            insort(ranks, new)
        waiting = tuple(ranks)
    place = replace(
        place,
        waiting=waiting,
        demand=place.demand + pool.shortfall - (before.shortfall if before else 0),
        picky=place.picky + _picky(pool) - (_picky(before) if before else 0),
    )
    return replace(
        state,
        pools=state.pools.set(key, pool),
        offerings=state.offerings.set(pool.offering, place),
    )


def _rank(pool: Pool, key: str) -> Rank:
    return rank(pool.spec, pool.since, key)


def _picky(pool: Pool) -> int:
    return int(pool.shortfall > 0 and pool.spec.affinity is not None)


def _again(state: State, name: str) -> State:
    """Looks at an offering again where somebody's output may change by it."""
    place = state.offerings.get(name)
    if place is None or not (place.waiting or len(place.short)):
        return state
    free = state.inventory.count(name)
    if not len(place.short) and free >= place.demand and not place.picky:
        return state
    return replace(state, again=state.again.put(name))


def _wished(state: State, wish: NodePoolValidated) -> State:
    key, judged = wish.key, wish.reason is Validated.VALID
    known = state.pools.get(key)
    name = offering(wish.zone, wish.spec.instance_type)
    if known is None or known.uid != wish.uid:
        pool = Pool(wish.path, wish.uid, name, wish.generation, wish.spec, judged=False)
        return _stored(state, key, pool)
    # A changed wish waits for its quota: until then nothing is wanted on its behalf.
    same = known.generation == wish.generation
    return _stored(
        state,
        key,
        replace(
            known,
            generation=wish.generation,
            spec=wish.spec,
            judged=known.judged and same and judged,
        ),
    )


def _granted(state: State, key: str, verdict: QuotaChecked, now: Context) -> State:
    pool = state.pools[key]
    if verdict.generation != pool.generation:
        return state
    within = verdict.reason is Quota.UNDER
    after = replace(pool, granted=verdict.granted, judged=True, within_quota=within)
    # Who wants no more than before keeps its place; a wish judged anew is no new one.
    if not pool.missing or after.missing > pool.missing:
        after = replace(after, since=now.time)
    state = _stored(state, key, after)
    return _again(state, pool.offering) if after.shortfall else state


def _assigned(state: State, said: CWNodeAssigned) -> State:
    key, machine = said.key, f"{said.zone}/{said.node}"
    inventory = state.inventory.assign(machine, key, said.assignment)
    state = replace(state, inventory=inventory)
    if _is(state, key, said.uid):
        pool = state.pools[key]
        state = _stored(state, key, replace(pool, held=pool.held + 1))
    return _again(state, offering(said.zone, said.instance_type))


def _left(state: State, said: CWNodeDeleted | CWNodeRegistrationFailed) -> State:
    key, machine = said.key, f"{said.zone}/{said.node}"
    leave = state.inventory.release if isinstance(said, CWNodeDeleted) else state.inventory.triage
    state = replace(state, inventory=leave(machine, said.assignment))
    if _is(state, key, said.uid):
        pool = state.pools[key]
        assert pool.held > 0, f"{key} holds fewer than no Nodes"
        state = _stored(state, key, replace(pool, held=pool.held - 1))
    return _again(state, state.inventory.machines[machine].offering)


def _forgotten(state: State, key: str) -> State:
    pool = state.pools[key]
    state = _stored(state, key, replace(pool, judged=False))
    place = state.offerings[pool.offering]
    place = replace(place, short=place.short.drop(key))
    state = replace(
        state,
        pools=state.pools.delete(key),
        offerings=state.offerings.set(pool.offering, place),
    )
    return _again(state, pool.offering)


def _told(state: State, key: str, verdict: CapacityChecked) -> State:
    before = state.pools[key]
    pool = replace(before, reason=verdict.reason, available=verdict.available)
    place = state.offerings[pool.offering]
    enough = verdict.reason is Capacity.SUFFICIENT
    short = place.short.drop(key) if enough else place.short.put(key)
    state = replace(
        state,
        pools=state.pools.set(key, pool),
        offerings=state.offerings.set(pool.offering, replace(place, short=short)),
    )
    # There may be more to change than one decision may say: then look again until nothing does.
    changed = before.reason is not verdict.reason
    return _again(state, pool.offering) if changed and pool.offering == state.looking else state


def decide(state: State, message: Message, now: Context) -> Iterator[Says]:
    """The verdict on a grant, and on those who wait when machines come or go."""
    match message:
        case QuotaChecked(key=key) if _is(state, key, message.uid):
            pool = state.pools[key]
            if pool.generation == message.generation:
                available, reason = _for_one(state, key)
                yield from _verdict(state, key, reason, available)
        case Wake():
            yield from _look_again(state)


def _look_again(state: State) -> Iterator[Says]:
    verdicts = 0
    for key, reason, available in judged(state, state.looking):
        pool = state.pools[key]
        if reason is pool.reason and available <= pool.available:
            continue
        yield from _verdict(state, key, reason, available)
        verdicts += 1
        if verdicts >= VERDICTS_MAX:
            return


def _for_one(state: State, key: str) -> tuple[int, Capacity]:
    pool = state.pools[key]
    place, free = state.offerings[pool.offering], state.inventory.count(pool.offering)
    if not pool.shortfall:
        return free, Capacity.SUFFICIENT
    if free >= place.demand and not place.picky:
        return free - place.demand + pool.shortfall, Capacity.SUFFICIENT
    for other, reason, available in judged(state, pool.offering):
        if other == key:
            return available, reason
    return 0, Capacity.NONE_AVAILABLE


def judged(state: State, name: str) -> Iterator[tuple[str, Capacity, int]]:
    """Each NodePool whose output may differ from what it was told: its reason, and how many.

    Those who wait are served in their order from what is free; once nothing is, only they are
    named who were promised something.
    """
    place = state.offerings.get(name, Offering())
    served = _picked(state, name, place) if place.picky else _counted(state, name, place)
    yield from served
    for key in place.short:
        pool = state.pools[key]
        if pool.judged and not pool.shortfall:
            yield key, *ENOUGH


def _counted(state: State, name: str, place: Offering) -> Iterator[tuple[str, Capacity, int]]:
    free = state.inventory.count(name)
    for *_, key in place.waiting:
        pool = state.pools[key]
        if free or pool.reason is not Capacity.NONE_AVAILABLE:
            yield key, _reason(pool, free, free), free
        free = max(0, free - pool.shortfall)


def _picked(state: State, name: str, place: Offering) -> Iterator[tuple[str, Capacity, int]]:
    taken: set[str] = set()
    free = state.inventory.count(name)
    for *_, key in place.waiting:
        pool = state.pools[key]
        if len(taken) == free and pool.reason is Capacity.NONE_AVAILABLE:
            continue
        found = [m for m in state.inventory.fitting(name, pool.spec.affinity) if m not in taken]
        yield key, _reason(pool, len(found), free - len(taken)), len(found)
        taken.update(found[: pool.shortfall])


def _reason(pool: Pool, available: int, anyhow: int) -> Capacity:
    if available >= pool.shortfall:
        return Capacity.SUFFICIENT
    affinity = pool.spec.affinity is not None and anyhow > available
    if available:
        return Capacity.PARTIAL_NODE_AFFINITY if affinity else Capacity.PARTIAL
    return Capacity.NONE_AVAILABLE_NODE_AFFINITY if affinity else Capacity.NONE_AVAILABLE


def _verdict(state: State, key: str, reason: Capacity, available: int) -> Iterator[Says]:
    pool = state.pools[key]
    org, cluster, name = pool.of
    message = _message(pool, reason, available)
    yield CapacityChecked(
        org=org,
        cluster=cluster,
        pool=name,
        uid=pool.uid,
        generation=pool.generation,
        granted=pool.granted,
        reason=reason,
        wanted=pool.shortfall,
        available=available,
        since=pool.since,
        message=message,
    )
    if reason is not Capacity.SUFFICIENT and reason is not pool.reason:
        yield CWInsufficientCapacity(org=org, cluster=cluster, pool=name, message=message)


def _message(pool: Pool, reason: Capacity, available: int) -> str:
    if reason is Capacity.SUFFICIENT:
        return HEALTHY[reason]
    zone, kind = pool.offering.split("/")
    affinity = "NodeAffinity" in reason.value
    under = " that satisfy the node affinity" if affinity else ""
    have = f"{available} of {pool.shortfall}" if available else f"none of {pool.shortfall}"
    return f"{have} wanted Nodes of {kind}{under} can be had in {zone} now"


def on_failure(failure: Failure) -> Iterable[Says]:
    """A NodePool whose capacity cannot be judged is told so."""
    org, cluster, pool = failure.address.path
    if org != FLEET and pool != UNNAMED:
        told = f"internal error while checking capacity: {failure.cause}"
        yield CapacityCheckFailed(org=org, cluster=cluster, pool=pool, message=told)


SERVICE = Service(
    name="capacity",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    wakes=wakes,
    on_failure=on_failure,
)
