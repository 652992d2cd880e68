"""How NodePools get machines: what is announced, and which machine goes to which of them."""

from collections.abc import Iterator

from allocator.pool import Pool
from allocator.state import State
from nodepool.contract.events import CWNodeAssigned, CWNodePoolScaledUp, CWNodeRequestQueued
from nodepool.contract.keys import MachineKey, OfferingKey, pool_path
from nodepool.contract.messages import pool_fields
from nodepool.state.ranking import Ranking


def requested(pool: Pool) -> Iterator[CWNodePoolScaledUp | CWNodeRequestQueued]:
    """What is announced once a larger target than before is granted whole."""
    target, before = pool.target, pool.scaled
    if (
        pool.grant is None
        or pool.grant.nodes != target
        or (before is not None and target <= before)
    ):
        return
    if before is not None:
        text = f"scaled up from {before} to {target} Nodes"
        yield CWNodePoolScaledUp(**pool_fields(pool.key), before=before, after=target, message=text)
    count = pool.shortfall
    if count:
        text = f"requested {count} Nodes of {pool.spec.instance_type}"
        yield CWNodeRequestQueued(
            **pool_fields(pool.key), count=count, granted=target, message=text
        )


def served(state: State, offering: OfferingKey) -> Iterator[CWNodeAssigned]:
    """Free machines of an offering for the NodePools that wait, in their order."""
    taken: set[MachineKey] = set()
    free = state.inventory.count(offering)
    for key in state.waiting.get(offering, Ranking()):
        pool = state.pools[key]
        for machine in _machines(state, pool, taken):
            taken.add(machine)
            yield _assigned(state, pool, machine, state.assignments + len(taken))
        if len(taken) >= free:
            return


def _machines(state: State, pool: Pool, taken: set[MachineKey]) -> Iterator[MachineKey]:
    missing = pool.shortfall
    for machine in state.inventory.fitting(pool.offering, pool.spec.affinity):
        if not missing:
            return
        if machine not in taken:
            missing -= 1
            yield machine


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
        message=f"Node {machine.name} is assigned to NodePool {name}",
    )
