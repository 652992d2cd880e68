"""The conditions of a NodePool of the read model: verdicts of checks, and verdicts on its Nodes."""

from collections.abc import Iterable, Iterator, Mapping

from aggregator.objects import NodePoolObject, Progressing
from nodepool.contract.conditions import (
    AtTarget,
    Condition,
    NodesRemoved,
    Quota,
    Reason,
    change_condition,
    compute_accepted,
)
from nodepool.contract.progress import CHECKS, evaluated_generation, is_decided, progressing
from nodepool.service import Context
from nodepool.state.values import replace

Verdict = tuple[Reason, str]
"""The reason of a condition, and its message."""


def with_condition(
    pool: NodePoolObject, reason: Reason, message: str, context: Context
) -> NodePoolObject:
    """Return the NodePool after a verdict."""
    return _with_conditions(pool, ((reason, message),), context)


def _with_conditions(
    pool: NodePoolObject, verdicts: Iterable[Verdict], context: Context
) -> NodePoolObject:
    """Return the NodePool after verdicts of one moment; evaluate acceptance and progress once."""
    conditions, checked, position = pool.conditions, pool.checked, context.position
    is_regranted = False
    for reason, message in verdicts:
        kind = type(reason).__name__
        is_regranted = is_regranted or kind == Quota.__name__
        before = conditions.get(kind)
        after = change_condition(before, reason, message, pool.generation, context.time, position)
        if after is not before:
            conditions = conditions.set(kind, after)
            if kind in CHECKS and not is_decided(before, pool.generation):
                checked = context.time
    if conditions is pool.conditions and not is_regranted:
        return pool
    # A verdict on quota may change the grant, and with it the progress, while no condition changes.
    progress = _progressing(pool, conditions, context)
    if conditions is pool.conditions and progress is pool.progressing:
        return pool
    kept = compute_accepted(pool.accepted, conditions, context.time, refused=pool.fault == "Zone")
    return replace(
        pool,
        conditions=conditions,
        checked=checked,
        observed=max(pool.observed, evaluated_generation(conditions)),
        accepted=kept,
        progressing=progress,
        version=position,
    )


def _progressing(
    pool: NodePoolObject, conditions: Mapping[str, Condition], context: Context
) -> Progressing | None:
    deleting = pool.deleting is not None
    condition = progressing(
        conditions, pool.generation, deleting=deleting, is_granted=pool.is_granted
    )
    if condition is None:
        return None
    before = pool.progressing
    is_kept = before is not None and before.type == condition.type
    return before if is_kept else Progressing(condition.type, context.time)


def with_counts(
    pool: NodePoolObject,
    context: Context,
    *verdicts: Verdict,
    in_progress: int = 0,
    current: int = 0,
) -> NodePoolObject:
    """Return the NodePool with changed counts, and the conditions that follow from the counts.

    verdicts: the verdicts of checks at the same moment.
    in_progress, current: the change of each count.

    The conditions that follow have no message here: the message is made from the counts when it is
    shown. `_judge_nodes` judges them again at each change of the target, of the Nodes or of an
    error.
    """
    pool = replace(
        pool,
        in_progress=pool.in_progress + in_progress,
        current=pool.current + current,
        progressed=context.time if in_progress + current else pool.progressed,
        version=context.position,
    )
    assert min(pool.current, pool.in_progress) >= 0, f"{pool.key} counts fewer than no Nodes"
    return _with_conditions(pool, (*verdicts, *_judge_nodes(pool)), context)


def _judge_nodes(pool: NodePoolObject) -> Iterator[Verdict]:
    """Yield the verdicts on the Nodes of a NodePool, which follow from its counts and errors.

    While an error of the allocation or of its Nodes stands, AtTarget is InternalError, whatever the
    counts are. While the NodePool is being deleted, NodesRemoved shows the error instead. Once no
    Node is left, only the error of the deletion's end counts.
    """
    error = pool.deletion_error or pool.node_error or pool.allocation_error
    if pool.deleting is None:
        yield (AtTarget.INTERNAL_ERROR if error else pool.at_target), error
        return
    yield pool.at_target, ""
    removed = pool.conditions.get(NodesRemoved.__name__)
    is_complete = removed is not None and removed.reason == NodesRemoved.COMPLETE
    if is_complete and not pool.deletion_error:
        return
    yield (NodesRemoved.INTERNAL_ERROR if error else NodesRemoved.PENDING), error
