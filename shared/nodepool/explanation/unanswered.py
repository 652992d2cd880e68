"""Find the service that does not answer: its work is due, but it says nothing."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from nodepool.contract.conditions import Capacity, Validated
from nodepool.contract.phases import RESTARTING
from nodepool.contract.timetable import GONE_AFTER, GRACE_MAX_S
from nodepool.explanation.facts import Check, Facts, Step, StepName
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.sharing import rack_of

ANSWERS_WITHIN: Final = timedelta(seconds=15)
"""A service answers within milliseconds; after this time it counts as silent."""
GONE_MINUTES: Final = int(GONE_AFTER.total_seconds() // 60)
"""The most minutes that a preemption takes."""
GRACE_MAX: Final = timedelta(seconds=GRACE_MAX_S)
"""The longest grace period of a Pod."""
INTERNAL_ERROR: Final = "InternalError"
"""The reason of a condition whose check could not decide."""
CHECKED_BY: Final = {"Validated": "validator", "Quota": "quota", "Capacity": "capacity"}
"""The service that determines each condition, in the order of the checks."""
ACTS_NEXT: Final[Mapping[StepName, tuple[str, ...]]] = {
    "count machines": ("capacity",),
    "assign": ("allocator", "capacity"),
    "ask spot Nodes": ("allocator", "capacity"),
    "warn": ("preemption",),
    "mark": ("lifecycle",),
    "preempt": ("preemption", "lifecycle"),
    "cordon": ("lifecycle",),
    "choose": ("allocator", "lifecycle"),
    "remove": ("lifecycle",),
    "register": ("lifecycle",),
    "end": ("allocator",),
    "forget": ("validator",),
    "release": ("allocator", "quota"),
}
"""The services that have to act next, in order: if a step does not end, one of them does
not answer. The lifecycle service marks a Node that the allocator has chosen; the preemption service
warns of a preemption and begins its drain, and the lifecycle service marks and ends the Node."""


def drop_unchecked(checks: Iterable[Check]) -> dict[str, Check]:
    """Return the conditions for the newest generation by type, without those that may be outdated.

    While Validated is not True, nothing else is checked. A change of metadata keeps the generation,
    so the verdicts from before look as if they were about this version.
    """
    found = {check.type: check for check in checks}
    validated = found.get("Validated")
    if validated is None or validated.status == "True":
        return found
    return {kind: found[kind] for kind in found if kind not in ("Quota", "Capacity")}


def is_late(facts: Facts, since: datetime | None, within: timedelta = ANSWERS_WITHIN) -> bool:
    """Whether what is due since this moment should have happened; false without a present."""
    return facts.now is not None and since is not None and facts.now - since > within


def undetermined_check(facts: Facts) -> str:
    """Return the first check that is due and has not judged the newest generation, or "".

    No check is due after an earlier check that found the spec invalid, or could not decide.
    """
    for kind in CHECKED_BY:
        check = facts.checks.get(kind)
        if check is None:
            return kind
        if not _is_decided(facts, kind):
            return ""
    return ""


def due_since(facts: Facts) -> datetime | None:
    """Return since when the next check is due: since the check before it has decided."""
    return latest(facts.specified, facts.checked)


def is_outdated(facts: Facts, check: Check) -> bool:
    """Return whether Capacity says that machines are missing, but for another number of Nodes."""
    is_short = check.type == "Capacity" and check.status == "False"
    lacks = facts.allowed - facts.held
    return is_short and (lacks <= 0 or facts.missing not in (0, lacks))


def outdated_since(facts: Facts) -> datetime | None:
    """Return since when Capacity could be evaluated again: since the newest Node at the latest."""
    return latest(assigned_since(facts), *(node.created for node in facts.counted_nodes))


def assigned_since(facts: Facts) -> datetime | None:
    """Return since when machines could be assigned: since the last thing that they waited for."""
    moments = [check.since for check in facts.checks.values()]
    return latest(*moments, due_since(facts), facts.progressed)


def count_unassigned(facts: Facts) -> int:
    """Return how many Nodes could be assigned that quota allows, as Capacity says; 0 for none.

    For Partial it is 1, since Facts do not say how many Nodes can be had.
    """
    if not all(_is_decided(facts, kind) for kind in CHECKED_BY) or has_failed(facts):
        return 0
    capacity, missing = facts.checks["Capacity"], facts.allowed - facts.held
    if missing <= 0 or facts.deleting or facts.spot_awaited:
        return 0
    if capacity.status == "True":
        return missing
    return int(capacity.reason.startswith(Capacity.PARTIAL))


def lacks_spot_nodes(facts: Facts) -> bool:
    """Return whether a spot Node of the organisation has to give way, and none is asked to.

    Whether other machines come anyway is only known if no other organisation has any.
    """
    machines, capacity = facts.machines, facts.checks.get("Capacity")
    if machines is None or capacity is None or capacity.reason != Capacity.NONE_AVAILABLE:
        return False
    if facts.spot or facts.spot_awaited or facts.deleting or rack_of(facts) > 1:
        return False
    if facts.has_affinity or has_failed(facts) or facts.missing != facts.allowed - facts.held:
        return False
    # Machines that are being wiped or given back come before the machine of any spot Node.
    comes = machines.to_reclaim or machines.reclaimed or machines.zap
    if comes or any(node.removal for node in facts.nodes):
        return False
    is_known = machines.assigned <= facts.held + sum(peer.held for peer in facts.peers)
    is_settled = not any(peer.leaving or peer.deleting for peer in facts.peers)
    return is_known and is_settled and any(peer.can_give_way for peer in facts.peers)


def unchosen_since(facts: Facts) -> datetime | None:
    """Return since when Nodes that are too many could have been chosen to leave; None for none.

    A removal that failed is tried again later, so a service at work says nothing for a while.
    """
    if has_failed(facts):
        return None
    if facts.deleting:
        waits = any(not node.removal or node.asked_since is not None for node in facts.nodes)
        return facts.deleting_since if waits else None
    if not all(_is_decided(facts, kind) for kind in CHECKED_BY) or count_unchosen(facts) <= 0:
        return None
    staying = [node for node in facts.counted_nodes if not node.removal]
    # Only an idle Node may leave; for a type in racks, only a rack whose Nodes are all idle.
    waits_for_idle = any if rack_of(facts) > 1 else all
    if facts.idle_only and waits_for_idle(node.active for node in staying):
        return None
    return latest(assigned_since(facts), *(node.idle_since for node in staying))


def steps_due(facts: Facts) -> Iterator[Step]:
    """Yield the next steps until Nodes, or the NodePool, are gone, each with when it is due."""
    check = facts.checks.get("NodesRemoved")
    if check is not None and check.status == "True":
        if check.since is not None:
            yield Step("forget", check.since)
        return
    if has_failed(facts):
        return
    ended = latest(facts.deleting_since, facts.progressed)
    if facts.deleting and ended is not None and not facts.nodes and not facts.held:
        yield Step("end", ended)
        return
    if (since := unchosen_since(facts)) is not None and (facts.deleting or _may_choose(facts)):
        yield Step("choose", since)
    if moments := [due for node in facts.nodes if (due := _gone_by(facts, node)) is not None]:
        yield Step("remove", min(moments))
    yield from _preemption_steps(facts)


def _preemption_steps(facts: Facts) -> Iterator[Step]:
    """Yield the next steps of preemptions; one that has not begun is void after a deletion."""
    asked = [(node.asked_since, node.warned) for node in facts.nodes if node.asked_since]
    if asked and not facts.deleting:
        since, is_warned = min(asked)
        yield Step("mark" if is_warned else "warn", since)
    if moments := [node.preempted_since for node in facts.nodes if node.preempted_since]:
        yield Step("preempt", min(moments) + GONE_AFTER)


def _may_choose(facts: Facts) -> bool:
    """Return whether further Nodes can be chosen to leave now.

    A rack leaves as a whole, so no more Nodes may be able to leave while Nodes leave.
    """
    staying = [node for node in facts.counted_nodes if not node.removal]
    is_due = rack_of(facts) == 1 or len(staying) == len(facts.counted_nodes)
    surplus = facts.held if any(not node.registered for node in staying) else facts.current
    return is_due and surplus > facts.wanted


def stopped_at(facts: Facts, steps: Iterable[Step]) -> Step | None:
    """Return the first of these steps that is late; None if no step is late."""
    return next((step for step in steps if is_late(facts, step.due)), None)


def is_stuck(facts: Facts, node: NodeFacts) -> bool:
    """Return whether a Node should have left."""
    return not has_failed(facts) and is_late(facts, _gone_by(facts, node))


def _gone_by(facts: Facts, node: NodeFacts) -> datetime | None:
    """Return when a Node should have left; None while that is not known.

    No Pod blocks a deletion; every other Pod ends within the longest grace period. The time counts
    from the newest of what the lifecycle service has said about the Node, such as that no Pod
    blocks it any more, and from the end of the time that its machine has to answer.
    """
    if not node.removal or node.asked_since is not None or node.preempted_since is not None:
        return None
    said = latest(node.removal_since, node.progressed, node.idle_since, facts.deleting_since)
    begun = latest(said, node.answer_by)
    # No work keeps a Node whose machine has not answered in time.
    if begun is None or not node.active or node.answer_by is not None:
        return begun
    is_blocked = node.blocking_count > 0 and not facts.deleting
    return None if is_blocked else begun + GRACE_MAX


def is_neglected(facts: Facts, node: NodeFacts) -> bool:
    """Return whether the lifecycle service should have done more about a Node that stays.

    It cordons an unhealthy Node at once, and says when a silent Node is unhealthy, or that most
    Nodes of its zone are silent. It says at once until when a machine has to answer a cordon, and
    gives the machine up after that.
    """
    if node.removal or has_failed(facts):
        return False
    if (due := node.answer_by or node.goes_on_since) is not None:
        return is_late(facts, due)
    if node.is_excused:
        is_counted = node.registered and node.phase not in RESTARTING
        return is_counted and is_late(facts, node.silence_due)
    is_due = node.phase == "production" and node.problems and not node.cordon
    return bool(is_due) and is_late(facts, node.problems_since)


def latest(*moments: datetime | None) -> datetime | None:
    """Return the latest of the moments that are known; None if none is known."""
    return max(filter(None, moments), default=None)


def count_unchosen(facts: Facts) -> int:
    """Return how many surplus Nodes of a NodePool are not chosen to leave yet."""
    leaving = sum(node.removal != "" for node in facts.counted_nodes)
    return facts.held - facts.wanted - leaving


def has_failed(facts: Facts) -> bool:
    """Return whether a service that runs could not decide about the Nodes, and tries it again."""
    checks = (facts.checks.get(kind) for kind in ("AtTarget", "NodesRemoved"))
    return any(check is not None and check.reason == INTERNAL_ERROR for check in checks)


def _is_decided(facts: Facts, kind: str) -> bool:
    """Return whether a check has judged the newest generation, so that the next step is due."""
    check = facts.checks.get(kind)
    return check is not None and check.reason not in (Validated.INVALID, INTERNAL_ERROR)


def spot_awaited_since(facts: Facts) -> datetime | None:
    """Return since when spot Nodes should have given way; None while their timetable may run.

    Any preemption may be the one that is awaited: a Node that has left may have gone to what is
    served before. So the timetable counts from the latest one.
    """
    machines = facts.machines
    begun = machines.preempting_since if machines is not None else None
    since = latest(assigned_since(facts), begun)
    is_over = is_late(facts, since, GONE_AFTER + ANSWERS_WITHIN)
    return since if facts.spot_awaited and is_over else None


def late_spot_nodes(facts: Facts) -> dict[StepName, int]:
    """Return how many spot Nodes are late, per step that each waits for: its warning, or its mark.

    Any such Node may be one that is awaited. The time counts from the last request or warning.
    """
    machines = facts.machines
    if machines is None or not is_late(facts, machines.preempting_since):
        return {}
    counts: dict[StepName, int] = {"warn": machines.unwarned, "mark": machines.unmarked}
    late = {step: min(facts.spot_awaited, count) for step, count in counts.items()}
    return {step: count for step, count in late.items() if count}


def unwarned(facts: Facts) -> list[NodeFacts]:
    """Return the Nodes that are to give way, and should have been marked for it."""
    return [node for node in facts.nodes if is_late(facts, node.asked_since)]


def silent_preemptions(facts: Facts, nodes: Iterable[NodeFacts]) -> Iterator[NodeFacts]:
    """Yield the Nodes whose preemption should have ended."""
    for node in () if has_failed(facts) else nodes:
        if is_late(facts, node.preempted_since, GONE_AFTER + ANSWERS_WITHIN):
            yield node
