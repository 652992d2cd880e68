"""The status of a NodePool in the read model; conditions about Nodes name the blockers."""

from collections import Counter
from collections.abc import Iterator, Mapping

from aggregator.objects import NodeObject, NodePoolObject
from aggregator.profiles import other_profiles, profile_of
from nodepool.contract.conditions import (
    HEALTHY,
    ORDER,
    AtTarget,
    Condition,
    NodesRemoved,
    list_deprecated,
)
from nodepool.contract.counting import format_count
from nodepool.contract.health import cordon_cause, is_problem
from nodepool.contract.model import RemovalReason, ScaleDownStrategy
from nodepool.contract.moments import rfc3339
from nodepool.contract.progress import progressing
from nodepool.explanation.causes import blocking
from nodepool.explanation.facts import Check, Facts
from nodepool.explanation.leaving import still_there, surplus
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.unanswered import drop_unchecked
from nodepool.state.values import replace

Document = Mapping[str, object]
"""An object of the read model, or a part of it, as a document."""
_TYPES = tuple(kind.__name__ for kind in ORDER)


def render_status(pool: NodePoolObject, *, show_deprecated: bool) -> Document:
    """Return the status with its conditions, the deprecated conditions included or not."""
    shown = _conditions(pool, show_deprecated=show_deprecated)
    return {
        "conditions": [condition.document() for condition in shown],
        "currentNodes": pool.current,
        "grantedNodes": pool.kept,
        "inProgress": pool.in_progress,
        **({"observedGeneration": pool.observed} if pool.observed else {}),
        **_profiles(pool),
        **_racks(pool),
        **_queue(pool),
        **_origin(pool),
    }


def _origin(pool: NodePoolObject) -> Document:
    """Return when the spec was stored, why by the autoscaler, and when anything came of it last."""
    moments = {
        "specified": pool.specified,
        "targeted": pool.targeted,
        "checked": pool.checked,
        "progressed": pool.progressed,
    }
    found = {name: rfc3339(moment) for name, moment in moments.items() if moment is not None}
    return {**found, **_build_autoscaled(pool)}


def _build_autoscaled(pool: NodePoolObject) -> dict[str, object]:
    """Return why the autoscaler has set the target, if it has."""
    if pool.autoscaled is None:
        return {}
    why = pool.autoscaled
    shown = {"message": why.message, "since": rfc3339(why.since), "logPosition": why.position}
    return {"autoscaled": shown}


def _profiles(pool: NodePoolObject) -> Document:
    """Return the active profile, and how many Nodes were booted with which other profiles."""
    active = profile_of(pool.spec)
    others = other_profiles(pool.profiles, active)
    return {"nodeProfile": active, **({"otherNodeProfiles": others} if others else {})}


def _queue(pool: NodePoolObject) -> Document:
    """Return what the NodePool waits for in a queue for machines; nothing if it does not wait."""
    found = {
        "queuedNodes": pool.queued,
        "awaitedSpotNodes": pool.spot_awaited,
        "queuePosition": pool.queue_position,
        "machinesNeeded": pool.machines_needed,
        "missingNodes": pool.missing,
    }
    return {name: number for name, number in found.items() if number}


def _racks(pool: NodePoolObject) -> Document:
    """Return the counts in racks, of a type that comes in racks: whole racks, and all awaited.

    A rack that lacks Nodes is awaited, and a whole rack for what remains. Which rack a Node in
    progress fills up is not counted, so what is awaited counts as whole racks until it has joined.
    A rack that leaves may lack Nodes, too, so no more is awaited than the target lacks.
    """
    size = pool.spec.rack_size
    if not size:
        return {}
    found = () if pool.in_progress else pool.domains.values()
    lacking = [-count % size for count in found if count % size]
    whole = -(-max(0, pool.queued - sum(lacking)) // size)
    target = pool.spec.target // size
    current = sum(count // size for count in pool.domains.values())
    queued = min(len(lacking), pool.queued) + whole
    counts = {"target": target, "current": current, "queued": min(queued, max(0, target - current))}
    lost = [{"name": name, "domain": domain} for name, domain in sorted(pool.lost.items())]
    return {"rackStatus": counts, **({"lostMachines": lost} if lost else {})}


def _conditions(pool: NodePoolObject, *, show_deprecated: bool) -> Iterator[Condition]:
    """Yield the conditions of a NodePool in order, with or without the deprecated conditions."""
    current = {
        kind: _with_numbers(pool, pool.conditions[kind])
        for kind in _TYPES
        if kind in pool.conditions
    }
    yield from current.values()
    deleting = pool.deleting is not None
    condition = progressing(current, pool.generation, deleting=deleting, is_granted=pool.is_granted)
    if condition is not None and pool.progressing is not None:
        yield replace(condition, since=pool.progressing.since)
    if show_deprecated:
        yield from list_deprecated(current, pool.accepted)


def _with_numbers(pool: NodePoolObject, condition: Condition) -> Condition:
    """Return the condition; if it has no message, add the message that follows from the counts."""
    if condition.message:
        return condition
    if condition.type == AtTarget.__name__:
        return replace(condition, message=_at_target(pool, AtTarget(condition.reason)))
    if condition.type == NodesRemoved.__name__:
        return replace(condition, message=f"{still_there(_facts(pool))}.")
    return condition


def _at_target(pool: NodePoolObject, reason: AtTarget) -> str:
    match reason:
        case AtTarget.TARGET_MET:
            return HEALTHY[reason]
        case AtTarget.UNDER_TARGET:
            count = f"NodePool has {pool.current} of {format_count(pool.spec.target)}"
            text = "; ".join((count, *_missing(pool)))
            return text if text.endswith("?") else f"{text}."
        case AtTarget.OVER_TARGET:
            is_wanted = pool.wanted == pool.spec.target
            most = f"wants {pool.wanted}" if is_wanted else f"its quota allows {pool.wanted}"
            has = format_count(pool.current)
            return f"NodePool has {has} and {most}; {surplus(_facts(pool))}."
        case AtTarget.PENDING_DELETE:
            return f"NodePool is being deleted, {still_there(_facts(pool))}."
        case AtTarget.INTERNAL_ERROR:
            return "internal error"


def _missing(pool: NodePoolObject) -> Iterator[str]:
    """Yield the causes that keep a NodePool from its target, in the words of its conditions."""
    if pool.in_progress:
        yield f"{pool.in_progress} {'is' if pool.in_progress == 1 else 'are'} in progress"
    yield from (cause.clause for cause in blocking(_facts(pool)))


def _facts(pool: NodePoolObject) -> Facts:
    """Return the facts that the object holds; its own messages depend on no other facts."""
    strategy = pool.spec.lifecycle.scale_down_strategy
    return Facts(
        name=pool.key,
        instance_type=pool.spec.instance_type,
        target=pool.spec.target,
        zone=pool.zone,
        current=pool.current,
        in_progress=pool.in_progress,
        away=pool.away,
        granted=pool.kept,
        deleting=pool.deleting is not None,
        deleting_since=pool.deleting,
        idle_only=strategy is ScaleDownStrategy.IDLE_ONLY,
        checks=drop_unchecked(
            _check(condition)
            for condition in pool.conditions.values()
            # A check of an older generation may not hold for this generation.
            if condition.generation == pool.generation
        ),
        nodes=tuple(_node(node) for node in pool.busy),
        staying=_staying(pool),
        position=pool.version,
        spot_awaited=pool.spot_awaited,
        missing=pool.missing,
    )


def _staying(pool: NodePoolObject) -> Mapping[str, int]:
    """Return how many Nodes stay in each domain, those in progress included."""
    stay = Counter(pool.domains)
    for node in pool.busy:
        if node.usable:
            stay[node.domain] += (not node.is_registered) - node.is_leaving
    return stay


def _check(condition: Condition) -> Check:
    return Check(
        condition.type,
        condition.status,
        condition.reason,
        condition.message,
        condition.since,
        condition.position,
    )


def _node(node: NodeObject) -> NodeFacts:
    asked = RemovalReason.PREEMPTED if node.asked_since is not None else None
    removal = node.removal or asked
    return NodeFacts(
        name=node.name,
        position=node.version,
        created=node.created,
        registered=node.is_registered,
        phase=node.phase.value,
        active=node.active,
        active_since=node.active_since,
        work=node.work,
        blocking=tuple((pod.name, pod.since) for pod in node.blocking),
        blocking_count=node.blocking_count,
        removal=removal.value if removal is not None else "",
        removal_since=node.removal_since,
        asked_since=node.asked_since if node.removal is None else None,
        problems=tuple(
            cordon_cause(each.type) for each in node.reported if is_problem(each.type, each.status)
        ),
        reserved=not node.usable,
        domain=node.domain,
    )
