"""Gives machines to NodePools and takes Nodes from them until each has what it may have."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from immutables import Map
from nodepool.state.persistent import Queue

from allocator.choose import Member, reprieved, victims
from allocator.pool import Pool, Removal
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    AllocationFailed,
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
    NodeRemovalCancelled,
    PreemptionPending,
    QuotaChecked,
    Wake,
)
from nodepool.contract.keys import FLEET, UNNAMED
from nodepool.contract.messages import Message, PoolFields, pool_fields
from nodepool.contract.model import RemovalReason, ScaleDownStrategy
from nodepool.service import IMMEDIATELY, Context, Failure, Service
from nodepool.state.inventory import Inventory, Rank, rank

Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | QuotaChecked
    | CapacityChecked
    | CapacityCheckFailed
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeActivityChanged
    | NodeKept
    | PreemptionPending
    | CWNodeDeleted
    | MachineAdded
    | MachineRepaired
    | Wake
)
Says = (
    GrantAcknowledged
    | AllocationFailed
    | NodeRemovalCancelled
    | CWNodePoolScaledUp
    | CWNodeRequestQueued
    | CWNodeAssigned
    | CWNodePoolRemoveNodes
    | CWNodeDeletionRequestSuccess
    | CWNodePoolNodesRemoved
    | CWNodePoolScaledDown
    | CWNodeDeliverFail
    | CWNodePoolNodesRequestFailed
)

MOVES_MAX = 400
"""How many Nodes one decision assigns or removes; a `Wake` goes on with the rest."""


@dataclass(frozen=True, slots=True)
class State:
    """NodePools, machines, who waits in each offering, and what to look at again at a `Wake`.

    `offerings` holds ranks, first to be served first; `again` holds names of offerings and keys of
    NodePools; `assignments` counts the stays of machines in NodePools.
    """

    pools: Map[str, Pool] = Map()
    inventory: Inventory = Inventory()
    offerings: Map[str, tuple[Rank, ...]] = Map()
    again: Queue = Queue()
    looking: str = ""
    assignments: int = 0


def wakes(state: State) -> datetime | None:
    """At once while there is more to assign or remove."""
    return IMMEDIATELY if len(state.again) else None


def evolve(state: State, message: Message, _now: Context) -> State:
    """Folds wishes, verdicts, and the way of every Node and machine."""
    match message:
        case NodePoolValidated():
            return _wished(state, message)
        case NodePoolDeleting(key=key, uid=uid) if _is(state, key, uid):
            return _stored(state, key, replace(state.pools[key], deleting=True, leaving=0))
        case CWNodePoolDeleted(key=key, uid=uid) if _is(state, key, uid):
            return replace(state, pools=state.pools.delete(key))
        case QuotaChecked(key=key, uid=uid) if _is(state, key, uid):
            return _granted(state, key, message)
        case CapacityChecked(key=key, uid=uid) if _is(state, key, uid):
            return _cleared(state, key, message)
        case CapacityCheckFailed(key=key) if key in state.pools:
            return _stored(state, key, replace(state.pools[key], cleared=False))
        case MachineAdded() | MachineRepaired():
            return _machine(state, message)
        case Wake():
            looking = next(iter(state.again), "")
            return replace(state, looking=looking, again=state.again.drop(looking))
        case CWNodeAssigned():
            return _assigned(state, message)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _left(state, message)
        case CWNodeRegistered() | NodeActivityChanged() | NodeKept() | NodeRemovalCancelled():
            return _changed(state, message)
        case PreemptionPending(key=key, node=node):
            member = _member(state, key, node, message.assignment)
            if member is None or member.removal is RemovalReason.POOL_DELETED:
                return state
            return _leaving(state, key, node, replace(member, removal=RemovalReason.PREEMPTED))
        case CWNodeDeletionRequestSuccess(key=key, node=node, removal=removal, request=request):
            member = state.pools[key].members[node]
            return _leaving(state, key, node, replace(member, removal=removal, requests=request))
        case _ if isinstance(message, OWN) and message.key in state.pools:
            return _stored(state, message.key, _said(state.pools[message.key], message))
    return state


OWN = (
    GrantAcknowledged
    | CWNodePoolScaledUp
    | CWNodeRequestQueued
    | CWNodePoolRemoveNodes
    | CWNodePoolNodesRemoved
    | CWNodePoolScaledDown
    | CWNodeDeliverFail
)


def _said(pool: Pool, message: Message) -> Pool:
    match message:
        case GrantAcknowledged(granted=granted):
            return replace(pool, bound=granted)
        case CWNodePoolScaledUp(after=after):
            return replace(pool, scaled=after)
        case CWNodeRequestQueued(granted=granted):
            scaled = granted if pool.scaled is None else pool.scaled
            return replace(pool, requested=granted, scaled=scaled)
        case CWNodePoolRemoveNodes(before=before):
            return replace(pool, removal=Removal(before))
        case CWNodePoolNodesRemoved(removal=RemovalReason.POOL_DELETED):
            return replace(pool, finished=True)
        case CWNodePoolScaledDown(after=after):
            return replace(pool, scaled=after, removal=None, requested=after)
        case CWNodeDeliverFail(node="", message=told):
            return replace(pool, fault=told)
    return pool


def _is(state: State, key: str, uid: str) -> bool:
    pool = state.pools.get(key)
    return pool is not None and pool.uid == uid


def _stored(state: State, key: str, pool: Pool) -> State:
    """The state with this NodePool, in its place among those who wait for machines."""
    before = state.pools.get(key)
    old = rank(before.spec, before.since, key) if before and before.shortfall else None
    new = rank(pool.spec, pool.since, key) if pool.shortfall else None
    state = replace(state, pools=state.pools.set(key, pool))
    if old == new:
        return state
    ranks = list(state.offerings.get(pool.offering, ()))
    if old is not None:
        del ranks[bisect_left(ranks, old)]
    if new is not None:
        insort(ranks, new)
    return replace(state, offerings=state.offerings.set(pool.offering, tuple(ranks)))


def _wished(state: State, wish: NodePoolValidated) -> State:
    key, valid = wish.key, wish.reason is Validated.VALID
    known = state.pools.get(key)
    if known is None or known.uid != wish.uid:
        pool = Pool(wish.path, wish.uid, wish.zone, wish.generation, wish.spec, valid)
        return _stored(state, key, pool)
    pool = replace(known, generation=wish.generation, spec=wish.spec, valid=valid)
    if pool.removal is not None and wish.spec.target_nodes >= pool.removal.before:
        pool = replace(pool, removal=None)
    return _stored(state, key, pool)


def _granted(state: State, key: str, verdict: QuotaChecked) -> State:
    pool = state.pools[key]
    # A grant for an older wish is not used, and yet has to be given back.
    pool = replace(pool, bound=max(pool.bound, verdict.granted))
    if verdict.generation != pool.generation:
        return _stored(state, key, pool)
    same = verdict.granted == pool.granted and pool.granted_for == verdict.generation
    pool = replace(
        pool,
        granted=verdict.granted,
        granted_for=verdict.generation,
        within_quota=verdict.reason is Quota.UNDER,
        cleared=pool.cleared and same,
    )
    if pool.scaled is None and not pool.spec.target_nodes:
        pool = replace(pool, scaled=0)
    return _stored(state, key, pool)


def _cleared(state: State, key: str, verdict: CapacityChecked) -> State:
    pool = state.pools[key]
    judged = (verdict.generation, verdict.granted) == (pool.granted_for, pool.granted)
    if not judged or pool.generation != verdict.generation:
        return state
    return _stored(state, key, replace(pool, cleared=True, since=verdict.since))


def _machine(state: State, said: MachineAdded | MachineRepaired) -> State:
    key = said.machine_key
    if isinstance(said, MachineAdded):
        state = replace(state, inventory=state.inventory.add(said))
    elif key in state.inventory.machines:
        state = replace(state, inventory=state.inventory.repair(key))
    else:
        return state
    return _look_at_offering(state, state.inventory.machines[key].offering)


def _look_at_offering(state: State, name: str) -> State:
    more = bool(state.offerings.get(name)) and state.inventory.count(name) > 0
    return replace(state, again=state.again.put(name) if more else state.again.drop(name))


def _assigned(state: State, said: CWNodeAssigned) -> State:
    key, machine = said.key, f"{said.zone}/{said.node}"
    inventory = state.inventory.assign(machine, key, said.assignment)
    pool = state.pools[key]
    members = pool.members.set(said.node, Member(said.assignment))
    state = replace(state, inventory=inventory, assignments=max(state.assignments, said.assignment))
    state = _stored(state, key, replace(pool, members=members))
    return _look_at_offering(state, pool.offering)


def _member(state: State, key: str, node: str, assignment: int) -> Member | None:
    pool = state.pools.get(key)
    member = pool.members.get(node) if pool is not None else None
    return member if member is not None and member.assignment == assignment else None


def _left(state: State, said: CWNodeDeleted | CWNodeRegistrationFailed) -> State:
    key, machine = said.key, f"{said.zone}/{said.node}"
    leave = state.inventory.release if isinstance(said, CWNodeDeleted) else state.inventory.triage
    state = replace(state, inventory=leave(machine, said.assignment))
    member = _member(state, key, said.node, said.assignment)
    if member is not None:
        pool = state.pools[key]
        removed = pool.leaves(member)
        removal = pool.removal
        if removal is not None and removed:
            removal = replace(removal, removed=removal.removed + 1)
        pool = replace(
            pool,
            members=pool.members.delete(said.node),
            leaving=pool.leaving - removed,
            removal=removal,
        )
        state = _stored(state, key, pool)
    return _look_at_offering(state, state.inventory.machines[machine].offering)


def _changed(
    state: State,
    said: CWNodeRegistered | NodeActivityChanged | NodeKept | NodeRemovalCancelled,
) -> State:
    member = _member(state, said.key, said.node, said.assignment)
    if member is None:
        return state
    pool = state.pools[said.key]
    leaving = pool.leaving
    match said:
        case CWNodeRegistered():
            member = replace(member, registered=True)
        case NodeActivityChanged(active=active):
            member = replace(member, active=active)
        case NodeKept(request=request) if request != member.requests:
            return state
        case NodeKept() | NodeRemovalCancelled():
            leaving -= pool.leaves(member)
            member = replace(member, removal=None)
    members = pool.members.set(said.node, member)
    return _stored(state, said.key, replace(pool, members=members, leaving=leaving))


def _leaving(state: State, key: str, node: str, member: Member) -> State:
    pool = state.pools[key]
    leaving = pool.leaving + pool.leaves(member) - pool.leaves(pool.members[node])
    pool = replace(pool, members=pool.members.set(node, member), leaving=leaving)
    state = _stored(state, key, pool)
    again = state.again.put(key) if pool.surplus > 0 else state.again.drop(key)
    return replace(state, again=again)


def decide(state: State, message: Message, now: Context) -> Iterator[Says]:
    """What is missing towards what each NodePool may have, said at most so much at a time."""
    match message:
        case Wake():
            yield from _go_on(state)
        case MachineAdded() | MachineRepaired():
            return
        case _:
            key = message.key if isinstance(message, HEARD_OF_POOL) else ""
            if key in state.pools:
                yield from _towards(state, key, message)


HEARD_OF_POOL = (
    NodePoolValidated
    | NodePoolDeleting
    | QuotaChecked
    | CapacityChecked
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeActivityChanged
    | NodeKept
    | CWNodeDeleted
)


def _go_on(state: State) -> Iterator[Says]:
    if state.looking in state.pools:
        yield from _shrink(state, state.looking)
    else:
        yield from _serve(state, state.looking, MOVES_MAX)


def _towards(state: State, key: str, message: Message) -> Iterator[Says]:
    pool = state.pools[key]
    match message:
        case NodePoolValidated(fault="Settings", message=told) if told != pool.fault:
            yield CWNodeDeliverFail(**_of(pool), message=f"Nodes cannot be delivered: {told}")
        case CWNodeRegistrationFailed(node=node, message=told):
            yield CWNodeDeliverFail(**_of(pool), node=node, message=f"not delivered: {told}")
        case QuotaChecked() if pool.granted < pool.bound and pool.granted_for == pool.generation:
            yield GrantAcknowledged(
                **_of(pool), uid=pool.uid, generation=pool.generation, granted=pool.granted
            )
    if isinstance(message, CapacityChecked) and pool.may_grow:
        yield from _request(pool)
        yield from _serve(state, pool.offering, MOVES_MAX)
    yield from _shrink(state, key)
    yield from _closed(pool)


def _request(pool: Pool) -> Iterator[Says]:
    target = pool.spec.target_nodes
    if pool.granted != target:
        return
    if pool.scaled is not None and target > pool.scaled:
        told = f"scaled up from {pool.scaled} to {target} Nodes"
        yield CWNodePoolScaledUp(**_of(pool), before=pool.scaled, after=target, message=told)
    if pool.shortfall and target > pool.requested:
        kind = pool.spec.instance_type
        told = f"requested {pool.shortfall} Nodes of {kind}"
        yield CWNodeRequestQueued(**_of(pool), count=pool.shortfall, granted=target, message=told)


def _serve(state: State, name: str, most: int) -> Iterator[Says]:
    """Machines for those who wait in an offering, in their order."""
    taken: set[str] = set()
    free = state.inventory.count(name)
    assignment = state.assignments
    for *_, key in state.offerings.get(name, ()):
        pool = state.pools[key]
        wanted = min(pool.shortfall, most - len(taken))
        if len(taken) >= free or not wanted:
            return
        for machine in _first(state, name, pool, wanted, taken):
            taken.add(machine)
            assignment += 1
            yield _assign(state, pool, machine, assignment)


def _first(state: State, name: str, pool: Pool, count: int, taken: set[str]) -> Iterator[str]:
    found = 0
    for machine in state.inventory.fitting(name, pool.spec.affinity):
        if found == count:
            return
        if machine not in taken:
            found += 1
            yield machine


def _assign(state: State, pool: Pool, key: str, assignment: int) -> CWNodeAssigned:
    machine = state.inventory.machines[key]
    return CWNodeAssigned(
        **_of(pool),
        node=machine.name,
        zone=machine.zone,
        uid=pool.uid,
        instance_type=machine.instance_type,
        assignment=assignment,
        labels=machine.labels,
        message=f"Node {machine.name} is assigned to NodePool {pool.of[2]}",
    )


def _shrink(state: State, key: str) -> Iterator[Says]:
    pool = state.pools[key]
    if pool.deleting:
        yield from _empty(pool)
    elif pool.surplus < 0 and pool.leaving:
        for node in reprieved(pool.members, -pool.surplus):
            yield NodeRemovalCancelled(
                **_of(pool),
                zone=pool.zone,
                node=node,
                assignment=pool.members[node].assignment,
            )
    elif pool.surplus > 0:
        strategy = pool.spec.lifecycle.scale_down_strategy
        chosen = victims(pool.members, pool.surplus, strategy)
        if pool.removal is None:
            yield _begun(pool, pool.surplus, strategy.value)
        idle_only = strategy is ScaleDownStrategy.IDLE_ONLY
        for node in chosen[:MOVES_MAX]:
            yield _leave(pool, node, RemovalReason.SCALE_DOWN, idle_only=idle_only)


def _empty(pool: Pool) -> Iterator[Says]:
    if pool.finished:
        return
    if not pool.members:
        yield CWNodePoolNodesRemoved(
            **_of(pool),
            uid=pool.uid,
            count=pool.removal.removed if pool.removal else 0,
            remaining=0,
            removal=RemovalReason.POOL_DELETED,
            message=f"all Nodes of NodePool {pool.of[2]} are removed",
        )
        return
    if pool.removal is None:
        yield _begun(pool, len(pool.members), "deletion of the NodePool")
    if not pool.surplus:
        return
    staying = sorted(node for node, member in pool.members.items() if not pool.leaves(member))
    for node in staying[:MOVES_MAX]:
        yield _leave(pool, node, RemovalReason.POOL_DELETED, idle_only=False)


def _begun(pool: Pool, count: int, why: str) -> CWNodePoolRemoveNodes:
    scaled = pool.scaled if pool.scaled is not None else len(pool.members)
    return CWNodePoolRemoveNodes(
        **_of(pool), count=count, before=scaled, message=f"removing {count} Nodes ({why})"
    )


def _leave(
    pool: Pool, node: str, removal: RemovalReason, *, idle_only: bool
) -> CWNodeDeletionRequestSuccess:
    return CWNodeDeletionRequestSuccess(
        **_of(pool),
        node=node,
        zone=pool.zone,
        assignment=pool.members[node].assignment,
        removal=removal,
        idle_only=idle_only,
        request=pool.members[node].requests + 1,
        message=f"deletion of Node {node} requested",
    )


def _closed(pool: Pool) -> Iterator[Says]:
    """The end of a scale-down: the Nodes that were too many are gone."""
    target = pool.spec.target_nodes
    if pool.deleting or not pool.valid or pool.leaving or pool.surplus > 0:
        return
    before = pool.removal.before if pool.removal else pool.scaled
    if before is None or before <= target:
        return
    removed = pool.removal.removed if pool.removal else 0
    if removed:
        yield CWNodePoolNodesRemoved(
            **_of(pool),
            uid=pool.uid,
            count=removed,
            remaining=len(pool.members),
            removal=RemovalReason.SCALE_DOWN,
            message=f"{removed} Nodes removed, {len(pool.members)} remain",
        )
    told = f"scaled down from {before} to {target} Nodes"
    yield CWNodePoolScaledDown(**_of(pool), before=before, after=target, message=told)


def _of(pool: Pool) -> PoolFields:
    return pool_fields(pool.of)


def on_failure(failure: Failure) -> Iterable[Says]:
    """A NodePool whose Nodes cannot be decided upon is told so."""
    org, cluster, name = failure.address.path
    if org == FLEET or name == UNNAMED:
        return
    of = {"org": org, "cluster": cluster, "pool": name}
    told = f"internal error while allocating Nodes: {failure.cause}"
    yield AllocationFailed(**of, message=told)
    yield CWNodePoolNodesRequestFailed(**of, message=told)


SERVICE = Service(
    name="allocator",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    wakes=wakes,
    on_failure=on_failure,
)
