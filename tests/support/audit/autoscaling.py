"""Rules for autoscaling: in bounds, never against a command, and not before cool-downs are over.

Nothing is given up while a Pod waits that an empty Node would take, nor a Node on its way, nor one
that is still there or left just before.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    NodePoolAutoscaled,
    NodePoolValidated,
    PodChanged,
    PodsWaitingReported,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePhase, NodePoolSpec
from nodepool.contract.phases import RESTARTING
from nodepool.contract.pods import Pod, Toleration
from support.audit.facts import Facts, Origin, Violation
from support.audit.facts import Pool as PoolFacts

COOL_DOWN = timedelta(minutes=10)
"""How long a target stands that a command has set, or the autoscaler has raised."""
MISSING = re.compile(r"(\d+) Nodes? ha(?:s|ve) been missing")
"""How many Nodes the autoscaler gives up because they have been missing for ten minutes."""


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes a target of the autoscaler, what becomes of it, and the Pods that wait."""
    match message:
        case NodePoolAutoscaled():
            _advised(facts, message, origin)
        case NodePoolValidated():
            _stored(facts, message)
        case PodChanged():
            _pod_changed(facts, message, origin)
        case PodsWaitingReported():
            _pods_reported(facts, message, origin)


def _advised(facts: Facts, event: NodePoolAutoscaled, origin: Origin) -> None:
    pool = facts.pools[event.uid]
    known = [version for version in _versions(pool) if version.generation == event.generation]
    if not known:
        raise Violation(f"{pool.key} has no generation {event.generation} yet")
    spec = known[0].spec
    kind = INSTANCE_TYPES[spec.instance_type]
    if not spec.autoscaling or kind.rack_size:
        raise Violation(f"{pool.key} is not autoscaled")
    if not (spec.min_nodes or 0) <= event.target <= (spec.max_nodes or 0):
        raise Violation(f"{pool.key} may not have {event.target} Nodes")
    if event.target == spec.target:
        raise Violation(f"{pool.key} has that target already")
    _check_quota(facts, pool, event, origin, spec.target)
    now = facts.times[origin.cause]
    commanded, raised = _last_changes(facts, pool, origin.cause)
    if commanded is not None and now - commanded < COOL_DOWN:
        raise Violation(f"the target of {pool.key} was set by a command just before")
    grant = pool.grants.as_of(origin.cause)
    if grant is not None and grant.reason is not Quota.UNDER and event.target > grant.granted:
        # A target that quota does not allow gets no Node; a smaller one does.
        facts.advice.setdefault((event.uid, event.generation), set()).add(event.target)
        return
    if event.target < spec.target and raised is not None and now - raised < COOL_DOWN:
        raise Violation(f"the target of {pool.key} was raised just before")
    waiting = _waiting(pool.waiting.as_of(origin.cause), spec)
    if event.target < spec.target and waiting:
        raise Violation(f"{waiting[0]} waits, and {pool.key} goes down to {event.target} Nodes")
    coming = _on_their_way(facts, pool, origin)
    if event.target < min(coming, spec.target):
        raise Violation(f"{pool.key} goes down to {event.target}, with {coming} Nodes on their way")
    _check_missing(facts, pool, event, origin, spec.target)
    facts.advice.setdefault((event.uid, event.generation), set()).add(event.target)


def _check_quota(
    facts: Facts, pool: PoolFacts, event: NodePoolAutoscaled, origin: Origin, before: int
) -> None:
    """Check that a target is not raised above the limit of the moment, nor above its Nodes.

    A target that is not above the Nodes that a NodePool holds fits any limit.
    """
    limits = facts.limited.get(pool.ledger)
    limit = (limits.as_of(origin.cause) if limits is not None else None) or 0
    if event.target > max(limit, before, pool.held_as_of(origin.cause)):
        raise Violation(f"{pool.key} is to have {event.target} Nodes, more than quota allows")


def _on_their_way(facts: Facts, pool: PoolFacts, origin: Origin) -> int:
    """How many Nodes had begun to boot, reboot or be verified before the cause, and still do so."""
    now, begun = facts.times[origin.cause], 0
    for stay in facts.stays_in(pool):
        is_booting = stay.phase is NodePhase.BOOTING
        since = stay.assigned if is_booting else stay.restarting_since
        is_coming = (is_booting or stay.phase in RESTARTING) and not stay.is_lent
        is_before = since is not None and since < now
        begun += is_coming and is_before and not stay.is_leaving(origin.cause)
    return begun


def _check_missing(
    facts: Facts, pool: PoolFacts, event: NodePoolAutoscaled, origin: Origin, before: int
) -> None:
    """Check that a NodePool lacked the Nodes that are given up as missing for ten minutes."""
    found = MISSING.search(event.message)
    if found is None:
        return
    begin = facts.times[origin.cause] - COOL_DOWN
    changes = [*pool.assignments, *pool.departures, *(at for at, _ in pool.lent.entries())]
    changes = sorted(at for at in changes if at <= origin.cause)
    known = bisect_right(changes, begin, key=lambda at: facts.times[at])
    held = [pool.held_at(at) for at in (*changes[max(0, known - 1) :], origin.cause)]
    if int(found[1]) > (lacked := before - max(held)):
        raise Violation(f"{found[0]} in {pool.key}, which lacked {lacked} for ten minutes")


def _last_changes(
    facts: Facts, pool: PoolFacts, position: int
) -> tuple[datetime | None, datetime | None]:
    """When a command changed the target last, and when the autoscaler raised it, up to there."""
    commanded = raised = None
    before: int | None = None
    for at, version in pool.versions.entries():
        if at > position:
            break
        after = version.spec.target
        if before is not None and after != before:
            if not version.autoscaled:
                commanded = facts.times[at]
            elif after > before:
                raised = facts.times[at]
        before = after
    return commanded, raised


def _versions(pool: PoolFacts) -> Iterator[NodePoolValidated]:
    return (version for _, version in pool.versions.entries())


def _stored(facts: Facts, event: NodePoolValidated) -> None:
    """A target that is not a command's was said by the autoscaler for the generation before."""
    versions = list(_versions(facts.pools[event.uid]))
    before = versions[-2] if len(versions) > 1 else None
    if before is None or before.spec.target == event.spec.target or not event.autoscaled:
        return
    said = facts.advice.get((event.uid, before.generation), set())
    if event.generation != before.generation + 1 or event.spec.target not in said:
        raise Violation(f"{event.key} has a target that the autoscaler did not have for it")


def _pod_changed(facts: Facts, event: PodChanged, origin: Origin) -> None:
    pool = facts.pools[event.uid]
    waiting = {} if pool.waiting.is_empty else dict(pool.waiting.last)
    if event.phase != "Pending":
        waiting.pop(event.name, None)
    elif event.spec is not None:
        waiting[event.name] = event.spec
    pool.waiting.add(origin.position, waiting)


def _pods_reported(facts: Facts, event: PodsWaitingReported, origin: Origin) -> None:
    """What an agent has counted is all that waits; its Pods go wherever they have room."""
    pool = facts.pools.get(event.uid)
    if pool is None or pool.key != event.key or (event.org, event.cluster) not in facts.agents:
        return
    waiting = {}
    for each in event.waiting:
        name = f"one of {each.count} Pods with {each.gpus} and {each.accelerators} GPUs"
        waiting[name] = Pod(
            name=name,
            gpus=each.gpus,
            accelerators=each.accelerators,
            tolerations=(Toleration(operator="Exists"),),
        )
    pool.waiting.add(origin.position, waiting)


def _waiting(pods: Mapping[str, Pod] | None, spec: NodePoolSpec) -> list[str]:
    """The names of those of these Pods that an empty Node would take."""
    return [name for name, pod in (pods or {}).items() if _fits(pod, spec)]


def _fits(pod: Pod, spec: NodePoolSpec) -> bool:
    """Whether an empty Node with this spec takes a Pod, its type being one with GPUs."""
    room = INSTANCE_TYPES[spec.instance_type].gpus
    is_open = pod.find_repelling_taint(spec.node_taints, "NoSchedule", "NoExecute") is None
    return is_open and max(pod.gpus, pod.accelerators) <= room


def faults(facts: Facts) -> Iterator[str]:
    """What the autoscaler has left undone, once all is quiet."""
    for pool in facts.existing_pools():
        version = pool.versions.last
        spec = version.spec
        if not spec.autoscaling or version.reason is not Validated.VALID or pool.deleting_since:
            continue
        waiting = [] if pool.waiting.is_empty else _waiting(pool.waiting.last, spec)
        stays = [
            stay
            for stay in facts.stays_in(pool)
            if stay.phase is NodePhase.PRODUCTION and not stay.is_lent
        ]
        room = facts.limits.get(pool.ledger, 0) - facts.reserved(pool.ledger)
        if waiting and len(stays) >= spec.target < (spec.max_nodes or 0) and room > 0:
            yield f"{waiting[0]} waits, and {pool.key} wants {spec.target} Nodes and no more"
        # A Slurm job that holds a lock runs, whether it has Pods or not.
        idle = [stay for stay in stays if not stay.working and stay.lock is None]
        if not waiting and idle and spec.target > (spec.min_nodes or 0):
            yield f"{idle[0].machine} is idle, and {pool.key} wants {spec.target} Nodes"
