"""The conditions of a NodePool in the read model; conditions about Nodes name the blockers."""

from collections.abc import Iterator
from dataclasses import replace

from aggregator.objects import NodeObject, NodePoolObject
from nodepool.contract.conditions import (
    HEALTHY,
    ORDER,
    AtTarget,
    Condition,
    NodesRemoved,
    deprecated,
)
from nodepool.contract.counting import counted
from nodepool.contract.model import ScaleDownStrategy
from nodepool.contract.moments import rfc3339
from nodepool.contract.progress import progressing
from nodepool.explanation.causes import blocking
from nodepool.explanation.facts import Check, Facts, NodeFacts
from nodepool.explanation.leaving import still_there, surplus

_TYPES = tuple(kind.__name__ for kind in ORDER)


def conditions(pool: NodePoolObject, *, show_deprecated: bool) -> Iterator[Condition]:
    """Yield the conditions of a NodePool in order, with or without the deprecated conditions."""
    current = {
        kind: _with_numbers(pool, pool.conditions[kind])
        for kind in _TYPES
        if kind in pool.conditions
    }
    yield from current.values()
    deleting = pool.deleting is not None
    condition = progressing(current, pool.generation, deleting=deleting)
    if condition is not None and pool.progressing is not None:
        yield replace(condition, since=pool.progressing.since)
    if show_deprecated:
        yield from deprecated(current, pool.accepted)


def observed(pool: NodePoolObject) -> dict[str, object]:
    """Return the newest generation that every check has evaluated, if there is one."""
    return {"observedGeneration": pool.observed} if pool.observed else {}


def autoscaled(pool: NodePoolObject) -> dict[str, object]:
    """Return why the autoscaler has set the target, if it has."""
    if pool.autoscaled is None:
        return {}
    why = pool.autoscaled
    shown = {"message": why.message, "since": rfc3339(why.since), "logPosition": why.position}
    return {"autoscaled": shown}


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
            count = f"NodePool has {pool.current} of {counted(pool.spec.target)}"
            text = "; ".join((count, *_missing(pool)))
            return text if text.endswith("?") else f"{text}."
        case AtTarget.OVER_TARGET:
            target, has = pool.spec.target, counted(pool.current)
            return f"NodePool has {has} and wants {target}; {surplus(_facts(pool))}."
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
        granted=pool.granted,
        deleting=pool.deleting is not None,
        deleting_since=pool.deleting,
        idle_only=strategy is ScaleDownStrategy.IDLE_ONLY,
        checks={
            kind: _check(condition)
            for kind, condition in pool.conditions.items()
            # A check of an older generation may not hold for this generation.
            if condition.generation == pool.generation
        },
        nodes=tuple(_node(node) for node in pool.busy),
        position=pool.version,
        spot_awaited=pool.spot_awaited,
        missing=pool.missing,
    )


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
    return NodeFacts(
        name=node.name,
        position=node.version,
        created=node.created,
        registered=node.registered is not None,
        active=node.active,
        active_since=node.active_since,
        work=node.work,
        blocking=tuple((pod.name, pod.since) for pod in node.blocking),
        blocking_count=node.blocking_count,
        removal=node.removal.value if node.removal is not None else "",
        removal_since=node.removal_since,
        reserved=not node.usable,
    )
