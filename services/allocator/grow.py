"""How NodePools get machines: the announcements, and which machine goes to which NodePool."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from immutables import Map

from allocator.pool import Pool
from allocator.state import State
from nodepool.contract.counting import counted
from nodepool.contract.events import CWNodeAssigned, CWNodePoolScaledUp, CWNodeRequestQueued
from nodepool.contract.exceptions import passing_over
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, pool_path
from nodepool.contract.messages import pool_fields
from nodepool.placement.machines import FreeMachines, take_racks
from nodepool.placement.ranking import Ranking


def requested(pool: Pool) -> Iterator[CWNodePoolScaledUp | CWNodeRequestQueued]:
    """Yield the announcements due when a NodePool may have more Nodes than it asked for before.

    Lost Nodes are replaced without an announcement. Nodes that the NodePool removed itself are
    requested again.
    """
    goal, before = pool.goal, pool.scaled
    if goal is None:
        return
    if before < goal == pool.target:
        text = f"scaled up from {before} to {counted(goal)}"
        yield CWNodePoolScaledUp(**pool_fields(pool.key), before=before, after=goal, message=text)
    count = pool.shortfall
    if count and goal > pool.requested:
        text = f"requested {counted(count)} of {pool.spec.instance_type}"
        yield CWNodeRequestQueued(**pool_fields(pool.key), count=count, granted=goal, message=text)


def served(
    state: State, offering: OfferingKey, free: FreeMachines, failed: dict[PoolKey, str]
) -> Iterator[CWNodePoolScaledUp | CWNodeRequestQueued | CWNodeAssigned]:
    """Yield the assignments of free machines to the NodePools that wait, in their order.

    If the announcement of a request failed, the request is announced before its assignments. A
    machine for a NodePool that is being checked stays free until the check is done. A NodePool that
    fails is passed over, and `failed` then holds the cause.
    """
    assignment = state.assignments
    for share in _shared(state, offering, free, failed):
        pool = state.pools[share.key]
        if pool.goal is None:
            continue
        for event in share.announced:
            yield event
        for machine in share.machines:
            assignment += 1
            yield _assigned(state, pool, machine, assignment)


class _Share(NamedTuple):
    """The machines that a NodePool gets in one turn.

    announced: the announcements before its first turn; empty for later turns.
    """

    key: PoolKey
    announced: tuple[CWNodePoolScaledUp | CWNodeRequestQueued, ...]
    machines: list[MachineKey]


def _shared(
    state: State, offering: OfferingKey, free: FreeMachines, failed: dict[PoolKey, str]
) -> list[_Share]:
    """Return what NodePools get, turn by turn."""
    shares: list[_Share] = []
    given: dict[PoolKey, list[MachineKey]] = {}
    turns, taken = state.waiting.get(offering, Ranking()).turns(), None
    while free.left:
        try:
            key, count = turns.send(taken)
        except StopIteration:
            break
        taken, pool = 0, state.pools[key]
        with passing_over(key, failed):
            announced = () if key in given else tuple(requested(pool))
            machines = machines_for(state, pool, free, count, given.get(key, []))
            taken = len(machines)
            if machines:
                given.setdefault(key, []).extend(machines)
                shares.append(_Share(key, announced, machines))
    return shares


def machines_for(
    state: State, pool: Pool, free: FreeMachines, count: int, taken: list[MachineKey]
) -> list[MachineKey]:
    """Return at most `count` machines for a NodePool that has taken some already.

    Of a type that comes in racks, the machines complete racks, if need be of more than `count`.
    """
    affinity, racks = pool.spec.affinity, pool.members.racks
    if racks is None:
        return free.take(affinity, count)
    held = Counter({domain: part.held for domain, part in racks.domains.items()})
    held.update(state.inventory.machines[key].domain for key in taken)
    goal = min(pool.claimed or 0, held.total() - (-count // racks.size) * racks.size)
    return take_racks(free, affinity, racks.size, goal, Map(held))


def _assigned(state: State, pool: Pool, key: MachineKey, assignment: int) -> CWNodeAssigned:
    machine = state.inventory.machines[key]
    _, _, name = pool_path(pool.key)
    return CWNodeAssigned(
        **pool_fields(pool.key),
        node=machine.name,
        zone=machine.zone,
        uid=pool.uid,
        instance_type=machine.instance_type,
        assignment=assignment,
        labels=machine.labels,
        compute_class=pool.spec.compute_class,
        message=f"Node {machine.name} is assigned to NodePool {name}",
    )
