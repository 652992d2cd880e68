"""The conditions of a NodePool as readers see them; those about its Nodes name what blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aggregator.objects import NodeObject, NodePoolObject
from nodepool.contract.conditions import (
    HEALTHY,
    ORDER,
    AtTarget,
    Condition,
    NodesRemoved,
    deprecated,
    rfc3339,
)
from nodepool.contract.model import ScaleDownStrategy

NAMED_MAX = 3
"""How many of the Nodes that a NodePool waits for are named: those that are active longest."""
CHECKS = ("Validated", "Quota", "Capacity")
"""The conditions that keep a NodePool from growing, in the order in which they are checked."""
_TYPES = tuple(kind.__name__ for kind in ORDER)


def conditions(pool: NodePoolObject, *, show_deprecated: bool) -> Iterator[Condition]:
    """The conditions of a NodePool in their order, with or without the deprecated ones."""
    current = {
        kind: _with_numbers(pool, pool.conditions[kind])
        for kind in _TYPES
        if kind in pool.conditions
    }
    yield from current.values()
    if show_deprecated:
        yield from deprecated(current, pool.accepted)


def _with_numbers(pool: NodePoolObject, condition: Condition) -> Condition:
    """The condition with the message that follows from the counts, where it has none of its own."""
    if condition.message:
        return condition
    if condition.type == AtTarget.__name__:
        return replace(condition, message=_at_target(pool, AtTarget(condition.reason)))
    if condition.type == NodesRemoved.__name__:
        return replace(condition, message=f"{_still_there(pool)}.")
    return condition


def _at_target(pool: NodePoolObject, reason: AtTarget) -> str:
    match reason:
        case AtTarget.TARGET_MET:
            return HEALTHY[reason]
        case AtTarget.UNDER_TARGET:
            count = f"NodePool has {pool.current} of {_nodes(pool.spec.target_nodes)}"
            return f"{'; '.join((count, *_missing(pool)))}."
        case AtTarget.OVER_TARGET:
            target = pool.spec.target_nodes
            return f"NodePool has {_nodes(pool.current)} and wants {target}; {_surplus(pool)}."
        case AtTarget.PENDING_DELETE:
            return f"NodePool is being deleted, {_still_there(pool)}."
        case AtTarget.INTERNAL_ERROR:
            return "internal error"


def _missing(pool: NodePoolObject) -> Iterator[str]:
    """What keeps a NodePool from its target."""
    if pool.in_progress:
        yield f"{pool.in_progress} {'is' if pool.in_progress == 1 else 'are'} in progress"
    found = (pool.conditions.get(kind) for kind in CHECKS)
    failing = [check for check in found if check is not None and check.status != "True"]
    if failing:
        yield " and ".join(f"{check.type} is {check.reason}" for check in failing)


def _surplus(pool: NodePoolObject) -> str:
    """What becomes of the Nodes that are too many."""
    validated = pool.conditions.get("Validated")
    if validated is not None and validated.status != "True":
        return f"none is removed while Validated is {validated.reason}"
    leaving = [node for node in pool.busy if node.removal is not None]
    surplus = pool.held - pool.spec.target_nodes - len(leaving)
    waited_for = [node for node in leaving if node.active]
    count = len(waited_for)
    if surplus > 0 and pool.spec.lifecycle.scale_down_strategy is ScaleDownStrategy.IDLE_ONLY:
        waited_for += [node for node in pool.busy if node.removal is None]
        count += surplus
    if waited_for:
        return _waits(waited_for, count)
    count = pool.current - pool.spec.target_nodes
    return f"{count} {'is' if count == 1 else 'are'} being removed"


def _still_there(pool: NodePoolObject) -> str:
    verb = "is" if pool.held == 1 else "are"
    waited_for = [node for node in pool.busy if node.active]
    waits = f"; {_waits(waited_for, len(waited_for))}" if waited_for else ""
    return f"{_nodes(pool.held)} {verb} still to be removed{waits}"


def _waits(nodes: Sequence[NodeObject], count: int) -> str:
    """The Nodes of which `count` are waited for, with what runs there and since when."""
    first = sorted(nodes, key=lambda node: (node.active_since or node.created, node.name))
    named = [f"{node.name}, {_work(node)}" for node in first[:NAMED_MAX]]
    if len(first) > NAMED_MAX:
        named.append(f"{len(first) - NAMED_MAX} more")
    which = f"{count} of {len(nodes)}: " if count < len(nodes) else ""
    return f"waits for {which}{'; '.join(named)}"


def _work(node: NodeObject) -> str:
    if not node.blocking:
        return f"active since {rfc3339(node.active_since or node.created)} ({node.work})"
    pods = [f"{pod.name} since {rfc3339(pod.since)}" for pod in node.blocking]
    if node.blocking_count > len(pods):
        pods.append(f"{node.blocking_count - len(pods)} more")
    return f"active with Pods {', '.join(pods)}"


def _nodes(count: int) -> str:
    return f"{count} Node{'' if count == 1 else 's'}"
