"""The Nodes of each NodePool that have a problem."""

from immutables import Map

from nodepool.contract.keys import MachineKey, PoolKey

Unhealthy = Map[PoolKey, Map[MachineKey, bool]]
"""By NodePool, the Nodes that have a problem; none is kept of a NodePool without any."""


def with_problems(
    unhealthy: Unhealthy, pool: PoolKey, key: MachineKey, *, has_problems: bool
) -> Unhealthy:
    """The same with this Node among them, or without it."""
    known = unhealthy.get(pool, Map())
    if has_problems is (key in known):
        return unhealthy
    after = known.set(key, True) if has_problems else known.delete(key)
    return unhealthy.set(pool, after) if after else unhealthy.delete(pool)
