"""A Node, and its NodePool, after it was booted again with the active node configuration."""

from dataclasses import replace

from immutables import Map

from aggregator.objects import NodeObject, NodePoolObject
from aggregator.profiles import counted_profiles, profile_of
from nodepool.contract.keys import PoolKey
from nodepool.service import Context

Pools = Map[PoolKey, NodePoolObject]


def booted_again(known: Pools, node: NodeObject, context: Context) -> tuple[NodeObject, Pools]:
    """Return the Node with the active profile, and the NodePools that count it."""
    pool = known.get(node.pool)
    profile = profile_of(pool.spec) if pool is not None else ""
    if pool is None or node.profile in ("", profile):
        return node, known
    profiles = counted_profiles(pool.profiles, node.profile, -1)
    profiles = counted_profiles(profiles, profile, 1)
    pool = replace(pool, profiles=profiles, version=context.position)
    return replace(node, profile=profile), known.set(pool.key, pool)
