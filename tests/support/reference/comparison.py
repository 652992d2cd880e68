"""All that a world shows once it is quiet, beside what the reference model computes."""

from collections.abc import Iterator

from nodepool.engine.world import World
from support.audit.facts import Facts
from support.reference import (
    capacity,
    conditions,
    departures,
    events,
    figures,
    idle,
    nodes,
    pods,
    profiles,
    quota,
    remains,
    turns,
)
from support.reference.history import History
from support.reference.pools import expected


def differences(world: World, history: History, facts: Facts) -> Iterator[str]:
    """Each difference as one sentence, those on the way first."""
    wanted = expected(history)
    quotas, machines = quota.QuotaModel(history), capacity.CapacityModel(history)
    yield from events.faults(history)
    yield from departures.faults(history)
    yield from quota.faults(quotas)
    yield from capacity.faults(machines)
    yield from nodes.faults(nodes.NodesModel(history))
    yield from turns.TurnsModel(history).faults
    yield from pods.faults(world, history)
    yield from idle.faults(world)
    yield from remains.faults(world, wanted, facts)
    yield from figures.faults(world, history, facts)
    yield from conditions.faults(world, wanted, quotas, machines, facts)
    yield from profiles.faults(world, history, wanted)
    yield from conditions.transitions(world, history)
