"""How NodePools get machines: the announcements, and which machine goes to which NodePool."""

from collections.abc import Generator, Iterator

from allocator.pool import Pool
from allocator.state import State
from nodepool.contract.counting import format_count
from nodepool.contract.events import CWNodeAssigned, CWNodePoolScaledUp, CWNodeRequestQueued
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, pool_path
from nodepool.contract.messages import pool_fields
from nodepool.placement.line import Line
from nodepool.placement.plan import Part, take_turns


def announce_growth(pool: Pool) -> Iterator[CWNodePoolScaledUp | CWNodeRequestQueued]:
    """Yield the announcements due when a NodePool may have more Nodes than it asked for before.

    Lost Nodes are replaced without an announcement. Nodes that the NodePool removed itself are
    requested again.
    """
    goal, before = pool.goal, pool.scaled
    if goal is None:
        return
    if before < goal == pool.spec.target:
        text = f"scaled up from {before} to {format_count(goal)}"
        yield CWNodePoolScaledUp(**pool_fields(pool.key), before=before, after=goal, message=text)
    count = pool.shortfall
    if count and goal > pool.requested:
        text = f"requested {format_count(count)} of {pool.spec.instance_type}"
        yield CWNodeRequestQueued(**pool_fields(pool.key), count=count, granted=goal, message=text)


def assign_machines(
    state: State, offering: OfferingKey, line: Line, failed: dict[PoolKey, str]
) -> Generator[
    CWNodePoolScaledUp | CWNodeRequestQueued | CWNodeAssigned, State, dict[PoolKey, int]
]:
    """Yield the assignments of free machines to the NodePools that wait, in their order.

    Return how many machines each NodePool takes. If the announcement of a request failed, the
    request is announced before its assignments. A machine for a NodePool that is being checked
    stays free until the check is done. A NodePool that fails is passed over, and `failed` then
    holds the cause.
    """
    parts: dict[PoolKey, Part] = {}
    announced: dict[PoolKey, tuple[CWNodePoolScaledUp | CWNodeRequestQueued, ...]] = {}
    given: list[tuple[Pool, list[MachineKey]]] = []

    def take(key: PoolKey, count: int) -> int:
        pool = state.pools[key]
        if key not in parts:
            announced[key] = tuple(announce_growth(pool))
            parts[key] = Part(pool)
        taken = parts[key].take(line, count)
        given.append((pool, parts[key].machines))
        return taken

    take_turns(state.ranking(offering), take, line, failed)
    assignment = state.assignments
    for pool, machines in given:
        if pool.goal is None or not machines:
            continue
        for event in announced.pop(pool.key, ()):
            state = yield event
        for machine in machines:
            assignment += 1
            state = yield _assign_machine(state, pool, machine, assignment)
    return {key: part.taken for key, part in parts.items()}


def _assign_machine(state: State, pool: Pool, key: MachineKey, assignment: int) -> CWNodeAssigned:
    machine, position = state.inventory.machines[key], state.find_position(state.pools[pool.key])
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
        since=position.since,
        owner=position.owner or "",
        exchanged=position.exchanged,
        message=f"Node {machine.name} is assigned to NodePool {name}",
    )
