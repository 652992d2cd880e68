"""The facts about a NodePool in the read model of a world, as the command line reads them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from nodepool.contract.documents import Document, text
from nodepool.engine.world import World
from nodepool.explanation.documents import facts
from nodepool.explanation.facts import Facts
from support.documents import documents_of

Buckets = Mapping[str, Mapping[str, Document]]
"""The documents of each bucket by key."""
READ = ("nodepools", "nodes", "quotas", "capacity", "machines", "clusters")


def buckets_of(world: World) -> Buckets:
    """Return everything that an explanation may read."""
    return {bucket: documents_of(world, bucket) for bucket in READ}


def facts_of(buckets: Buckets, pool: str, now: datetime | None = None) -> Facts:
    """Return the facts about the NodePool `org/cluster/name`; only its organisation's NodePools."""
    org, cluster, _ = pool.split("/")
    pools = buckets["nodepools"]
    zones = {key: text(each, "spec", "zone") for key, each in buckets["clusters"].items()}
    zone, kind = zones[f"{org}/{cluster}"], text(pools[pool], "spec", "instanceType")
    nodes: defaultdict[str, list[Document]] = defaultdict(list)
    for key, each in buckets["nodes"].items():
        nodes[key.rpartition("/")[0]].append(each)
    own = facts(pools[pool], nodes=nodes[f"{org}/{cluster}"])
    machines = [
        each
        for key, each in buckets["machines"].items()
        if key.startswith(f"{zone}/") and text(each, "spec", "instanceType") == kind
    ]
    peers = [
        (key.partition("/")[2], each, nodes[key.rpartition("/")[0]])
        for key, each in pools.items()
        if key != pool and key.startswith(f"{org}/") and zones[key.rpartition("/")[0]] == zone
    ]
    read = facts(
        pools[pool],
        zone=zone,
        nodes=nodes[f"{org}/{cluster}"],
        quota=buckets["quotas"].get(f"{org}/{zone}/{kind}"),
        capacity=buckets["capacity"].get(f"{zone}/{kind}") if own.needs_machines else None,
        machines=machines if own.needs_machines else (),
        peers=peers if own.needs_peers else (),
    )
    return replace(read, now=now)
