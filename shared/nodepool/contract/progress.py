"""The conditions that say whether a NodePool is on its way to its target, for tools that wait.

kstatus reads them, the library of Flux, Argo CD and Helm: see
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md.
"""

from collections.abc import Mapping

from nodepool.contract.conditions import (
    AtTarget,
    Capacity,
    Condition,
    NodesRemoved,
    Quota,
    Validated,
)

STALLED = "Stalled"
"""The condition of a NodePool of which nothing changes until a person acts."""
RECONCILING = "Reconciling"
"""The condition of a NodePool on its way to its target."""
CHECKS = (Validated.__name__, Quota.__name__, Capacity.__name__)
"""The conditions that checks evaluate for each generation, in the order of the checks."""


def is_decided(condition: Condition | None, generation: int) -> bool:
    """Return whether a check has evaluated a generation, so that the next check is due."""
    if condition is None or condition.generation != generation:
        return False
    return not _ends_checks(condition)


def evaluated_generation(conditions: Mapping[str, Condition]) -> int:
    """Return the newest generation that every check has evaluated; 0 for none.

    A check that could not decide, or that found the spec invalid, ends the evaluation.
    """
    evaluated = max((each.generation for each in conditions.values()), default=0)
    for kind in CHECKS:
        condition = conditions.get(kind)
        evaluated = min(evaluated, condition.generation if condition is not None else 0)
        if condition is not None and _ends_checks(condition):
            break
    return evaluated


def progressing(
    conditions: Mapping[str, Condition], generation: int, *, deleting: bool, is_granted: bool
) -> Condition | None:
    """Return why a NodePool of a generation is not at its target; None if it is.

    At its target, a NodePool stalls only while its spec is invalid. Above its target, a NodePool
    loses Nodes whatever quota and capacity say. If its whole target is granted, a NodePool gets
    its Nodes without a limit too. The `since` is that of the condition that it follows from.
    """
    at_target = conditions.get(AtTarget.__name__)
    is_over = at_target is not None and at_target.reason == AtTarget.OVER_TARGET
    checks = CHECKS[:1] if is_over else CHECKS
    kinds = (AtTarget.__name__, NodesRemoved.__name__) if deleting else (*checks, AtTarget.__name__)
    current = [
        conditions[kind]
        for kind in kinds
        if kind in conditions and conditions[kind].generation == generation
    ]
    is_met = at_target is not None and at_target.status == "True"
    stalls = _waits_for_a_person
    if is_met or is_granted:
        stalls = _is_invalid if is_met else _ends_checks
    for condition in current:
        if stalls(condition):
            return _follow_from(condition, STALLED, generation)
    if at_target is None:
        return None
    if not is_met:
        return _follow_from(at_target, RECONCILING, generation)
    if evaluated_generation(conditions) == generation:
        return None
    return Condition(
        RECONCILING,
        "True",
        "Checking",
        "The newest version of the NodePool is being checked.",
        at_target.since,
        generation,
        at_target.position,
    )


def _follow_from(cause: Condition, kind: str, generation: int) -> Condition:
    """Return the condition of this type that holds because of another condition."""
    # `replace` of the standard library takes four times as long, and each event asks for it.
    return Condition(
        kind, "True", cause.reason, cause.message, cause.since, generation, cause.position
    )


def _is_invalid(condition: Condition) -> bool:
    return condition.type == Validated.__name__ and condition.status == "False"


def _ends_checks(condition: Condition) -> bool:
    """Return whether the next checks wait until this check succeeds."""
    return _is_invalid(condition) or condition.status == "Unknown"


def _waits_for_a_person(condition: Condition) -> bool:
    """Return whether nothing ends this condition but a person; machines may become free."""
    is_quota = condition.type == Quota.__name__
    return _ends_checks(condition) or (is_quota and condition.status == "False")
