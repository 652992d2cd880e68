"""Which service does not answer: something is due, and the service that does it says nothing."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from nodepool.contract.conditions import Validated
from nodepool.contract.timetable import GONE_AFTER
from nodepool.explanation.facts import Facts, NodeFacts

ANSWERS_WITHIN: Final = timedelta(seconds=15)
"""A service answers within milliseconds; after this long it is taken for silent."""
INTERNAL_ERROR: Final = "InternalError"
"""The reason of a check that could not decide."""
CHECKED_BY: Final = {"Validated": "validator", "Quota": "quota", "Capacity": "capacity"}
"""The service that determines each condition, in the order of the checks."""


def is_late(facts: Facts, since: datetime | None, within: timedelta = ANSWERS_WITHIN) -> bool:
    """Whether what is due since this moment should have happened; false without a present."""
    return facts.now is not None and since is not None and facts.now - since > within


def undetermined_check(facts: Facts) -> str:
    """Return the first check that is due on the newest generation; empty for none.

    No check is due after an earlier check that found the spec invalid, or could not decide.
    """
    for kind in CHECKED_BY:
        check = facts.checks.get(kind)
        if check is None:
            return kind
        if check.reason in (Validated.INVALID, INTERNAL_ERROR):
            return ""
    return ""


def assigned_since(facts: Facts) -> datetime | None:
    """Return since when machines could be assigned: since the last thing that they waited for."""
    moments = [check.since for check in facts.checks.values() if check.since is not None]
    known = [*moments, *filter(None, (facts.specified,))]
    return max(known, default=None)


def unchosen_since(facts: Facts) -> datetime | None:
    """Return since when Nodes that are too many could have been chosen to leave; None for none."""
    if facts.deleting:
        waits = any(not node.removal for node in facts.nodes)
        return facts.deleting_since if waits else None
    leaving = sum(node.removal != "" for node in facts.counted_nodes)
    free = [node for node in facts.counted_nodes if not node.removal and not node.active]
    if facts.held - facts.target - leaving <= 0 or (facts.idle_only and not free):
        return None
    return assigned_since(facts)


def silent_preemptions(facts: Facts, nodes: list[NodeFacts]) -> Iterator[NodeFacts]:
    """Yield the Nodes whose preemption should have ended."""
    for node in nodes:
        if is_late(facts, node.removal_since, GONE_AFTER + ANSWERS_WITHIN):
            yield node
