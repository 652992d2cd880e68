"""What is left in the end: nothing of what is gone, and exactly one object for each thing there is.

* No service's state names a NodePool that is gone, nor its uid.
* A limit is kept while it is set, or while a valid NodePool is under it; an offering while it has
  machines or a valid NodePool.
* A NodePool that was never valid is known to the validator, the allocator, the lifecycle of its
  metadata, and the read model, and to nothing else.

From the log: nothing.
"""

import json
from collections.abc import Iterator

from nodepool.contract.catalog import ZONES
from nodepool.contract.metrics import INFO
from nodepool.engine.folded import Folded
from nodepool.engine.snapshot import dump
from nodepool.engine.world import World
from nodepool.service import AnyService
from support.audit.facts import Facts
from support.documents import documents_of
from support.reference.pools import Expected

CHECKERS = ("quota", "capacity")
"""The services that know nothing of a NodePool that was never valid."""


def faults(world: World, expected: Expected, facts: Facts) -> Iterator[str]:
    """Everything that is left of what is gone."""
    for service in world.services:
        yield from _state(world, service, expected, facts)
    yield from _objects(world, expected, facts)
    yield from _gauges(world, expected, facts)


def _state(world: World, service: AnyService, expected: Expected, facts: Facts) -> Iterator[str]:
    names = set(_strings(world.state(service.name)))
    gone_uids = {uid for uid, pool in facts.pools.items() if facts.uids.get(pool.key) != uid}
    gone_keys = {pool.key for pool in facts.pools.values()} - set(facts.uids)
    for name in sorted(names & (gone_uids | gone_keys)):
        yield f"the state of {service.name} names {name}, which is gone"
    if service.name not in CHECKERS:
        return
    never = {key for key, pool in expected.pools.items() if not pool.was_valid}
    for name in sorted(names & never):
        yield f"the state of {service.name} names {name}, which was never valid"
    keys = _ledgers(expected) | _offerings(expected, facts) | set(facts.machines)
    for name in sorted(names - keys):
        first, _, rest = name.partition("/")
        if rest and (first in ZONES or rest.partition("/")[0] in ZONES):
            yield f"the state of {service.name} keeps {name}, of which nothing is left"


def _strings(state: object) -> Iterator[str]:
    """Every text in a state."""
    stack: list[object] = [json.loads(line) for line in dump(Folded(state))]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())


def _ledgers(expected: Expected) -> set[str]:
    """The limits that are set, or have a NodePool."""
    pools = {pool.ledger for pool in expected.pools.values() if pool.was_valid}
    return {"/".join(ledger) for ledger in pools | set(expected.limits)}


def _offerings(expected: Expected, facts: Facts) -> set[str]:
    """The types of each zone that have machines, or a NodePool."""
    pools = {pool.ledger[1:] for pool in expected.pools.values() if pool.was_valid}
    return {"/".join(offering) for offering in pools | _of_machines(facts)}


def _of_machines(facts: Facts) -> set[tuple[str, str]]:
    return {machine.offering for machine in facts.machines.values()}


def _objects(world: World, expected: Expected, facts: Facts) -> Iterator[str]:
    quotas, capacity = _ledgers(expected), {"/".join(each) for each in _of_machines(facts)}
    least = {"/".join(ledger) for ledger in expected.limits}
    shown = {name: set(documents_of(world, name)) for name in ("nodepools", "quotas", "capacity")}
    yield from _compared("nodepools", shown["nodepools"], set(expected.pools), set(expected.pools))
    yield from _compared("quotas", shown["quotas"], least, quotas)
    yield from _compared("capacity", shown["capacity"], capacity, capacity)


def _compared(bucket: str, shown: set[str], least: set[str], most: set[str]) -> Iterator[str]:
    for key in sorted(shown - most):
        yield f"the bucket {bucket} holds {key}, of which nothing is left"
    for key in sorted(least - shown):
        yield f"the bucket {bucket} lacks {key}"


def _gauges(world: World, expected: Expected, facts: Facts) -> Iterator[str]:
    """Every label of a gauge is that of something that exists."""
    pools = {tuple(key.split("/", 2)) for key in expected.pools}
    kinds = {
        ledger.rpartition("/")[2] for ledger in _ledgers(expected) | _offerings(expected, facts)
    }
    for service in world.services:
        for metric, values, _ in service.samples(world.state(service.name)):
            name, labels = metric.name, dict(zip(metric.labels, values, strict=True))
            pool = labels.get("org", ""), labels.get("nodepool_cluster", ""), labels.get("pool", "")
            if "pool" in labels and pool not in pools:
                yield f"the gauge {name} is about {'/'.join(pool)}, which is gone"
            if metric is INFO:  # It shows NodePools that were never valid, too.
                continue
            if labels.get("instance_type", next(iter(kinds), "")) not in kinds:
                yield f"the gauge {name} is about {labels['instance_type']}, which is gone"
