"""The causes, seen on its Nodes, that keep a NodePool from its target or delay its deletion."""

from collections.abc import Iterable, Iterator

from nodepool.contract.cordons import is_by_command, split_causes
from nodepool.contract.counting import format_count
from nodepool.contract.timetable import BOOT_MAX
from nodepool.explanation import leaving
from nodepool.explanation.cause import Cause, Proof, blame, proofs, start_service
from nodepool.explanation.cordon_remedies import cordon_details, cordon_remedy, find_closed
from nodepool.explanation.facts import Facts, StepName
from nodepool.explanation.leaving import NAMED_MAX, PREEMPTED
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.node_remedies import (
    await_answer,
    await_cordon,
    await_reboot,
    find_unhealthy,
    health_remedies,
    removal_remedies,
)
from nodepool.explanation.outlook import gets_none, promise_missing
from nodepool.explanation.promises import Promise
from nodepool.explanation.remedies import Remedy, Wait, promise
from nodepool.explanation.reservation_remedies import reservation_remedies
from nodepool.explanation.unanswered import (
    ACTS_NEXT,
    ANSWERS_WITHIN,
    count_unchosen,
    has_failed,
    is_late,
    is_neglected,
    is_stuck,
    latest,
    silent_preemptions,
    steps_due,
    stopped_at,
    unchosen_since,
    unwarned,
)


def of_nodes(facts: Facts) -> Iterator[Cause]:
    """Yield the causes that Nodes show of a NodePool that stays, ranked."""
    if not facts.deleting:
        yield from _find_unchosen(facts)
        yield from _find_unwarned(facts)
        is_overdue = any(True for _ in silent_preemptions(facts, facts.nodes))
        if is_overdue:
            yield from _preemption(facts)
        yield from _booting(facts)
        yield from _removal(facts)
        if not is_overdue:
            yield from _preemption(facts)
        yield from _health(facts)
        yield from _cordon(facts)
        yield from _restart(facts)
        yield from _reservation(facts)


def deletion(facts: Facts) -> Iterator[Cause]:
    """Yield why a NodePool that is being deleted is still there."""
    check = facts.checks.get("NodesRemoved")
    position = check.position if check is not None else facts.position
    # No Pod blocks a deletion: each Pod only gets its grace period.
    step = stopped_at(facts, steps_due(facts))
    silent = ACTS_NEXT[step.name] if step is not None else ()
    unanswered = [node for node in facts.nodes if node.is_silent and node.answer_by is not None]
    wait = Remedy("wait until it is gone: no Pod blocks a deletion", Wait())
    if unanswered:
        wait = await_answer(unanswered, may_stay=False)
    yield Cause(
        "Deletion",
        "it is being deleted",
        leaving.still_there(facts),
        since=facts.deleting_since,
        remedies=tuple(map(start_service, silent)) or (wait,),
        proofs=(
            *proofs([(position, "condition NodesRemoved")]),
            *_node_proofs(node for node in facts.nodes if node.active or node.removal),
        ),
    )


def _find_unchosen(facts: Facts) -> Iterator[Cause]:
    """Yield the services that do not choose which surplus Nodes leave."""
    since = {step.name: step.due for step in steps_due(facts)}.get("choose")
    if is_late(facts, since):
        yield blame(
            ACTS_NEXT["choose"],
            f"the removal of {format_count(count_unchosen(facts))} has not begun",
            since,
            proofs([(facts.position, f"nodepool {facts.name}")]),
        )


def _find_unwarned(facts: Facts) -> Iterator[Cause]:
    """Yield the services that do not begin the preemptions of the Nodes that are to give way."""
    steps: tuple[tuple[StepName, bool], ...] = (("warn", False), ("mark", True))
    for step, is_warned in steps:
        nodes = [node for node in unwarned(facts) if node.warned is is_warned]
        if not nodes:
            continue
        verb = "is" if len(nodes) == 1 else "are"
        yield blame(
            ACTS_NEXT[step],
            f"{format_count(len(nodes))} {verb} to give way, which has not begun",
            min(filter(None, (node.asked_since for node in nodes)), default=None),
            _node_proofs(nodes),
        )


def _booting(facts: Facts) -> Iterator[Cause]:
    coming = min(facts.in_progress, facts.wanted - facts.current)
    if coming <= 0:
        return  # The surplus Nodes leave before they join.
    nodes = _oldest([node for node in facts.nodes if not node.registered])
    one, began = facts.in_progress == 1, next((node.created for node in nodes), None)
    surplus = f", {facts.in_progress - coming} too many" if coming < facts.in_progress else ""
    # The registration of a Node that has not joined after `BOOT_MAX` fails, and another Node comes.
    late = is_late(facts, began, BOOT_MAX + ANSWERS_WITHIN)
    who = f"{coming} of them" if surplus else "it" if one else "they"
    wait = Remedy(f"wait until {who} {'joins' if coming == 1 else 'join'} the cluster", Wait())
    yield Cause(
        "Booting",
        f"{facts.in_progress} {'is' if one else 'are'} in progress{surplus}",
        f"{_names(nodes)} {'has' if len(nodes) == 1 else 'have'} not joined yet" if nodes else "",
        since=began,
        remedies=_start("register") if late else (wait,),
        proofs=_node_proofs(nodes),
    )


def _removal(facts: Facts) -> Iterator[Cause]:
    over = facts.current > facts.wanted
    nodes = facts.counted_nodes if over else facts.nodes
    leave = [node for node in nodes if node.removal and node.removal != PREEMPTED]
    if not (over or leave):
        return
    blamed = is_late(facts, unchosen_since(facts)) or unwarned(facts)
    # Where preemptions that have begun take the whole surplus, nothing is removed besides.
    is_taken = count_unchosen(facts) <= 0 and all(n.asked_since is None for n in nodes)
    if not leave and (has_failed(facts) or blamed or is_taken):
        return
    moments = [node.removal_since for node in leave if node.removal_since is not None]
    shown = leave or [node for node in nodes if node.active]
    if over:
        title = f"it has {format_count(facts.current - facts.wanted)} too many"
        message = leaving.surplus(facts)
    else:
        title = f"{format_count(len(leave))} {'is' if len(leave) == 1 else 'are'} to leave"
        message = _names(leave)
    stuck = any(is_stuck(facts, node) for node in leave)
    at_target = facts.checks.get("AtTarget")
    began = latest(facts.targeted, at_target.since if at_target is not None else None)
    yield Cause(
        "Removal",
        title,
        message,
        since=began if over and began else min(moments, default=None),
        remedies=_start("remove") if stuck else tuple(removal_remedies(facts)),
        proofs=_node_proofs(shown),
    )


def _preemption(facts: Facts) -> Iterator[Cause]:
    found = [node for node in facts.nodes if node.removal == PREEMPTED]
    nodes = _oldest([node for node in found if node.asked_since is None])
    if not nodes:
        return
    late = list(silent_preemptions(facts, nodes))
    left = facts.held - sum(node.removal != "" for node in facts.counted_nodes)
    refills, gone = left < facts.allowed and not gets_none(facts), tuple(n.name for n in nodes)
    text = f"wait until {'it is' if len(nodes) == 1 else 'they are'} gone"
    wait = Remedy(text, Wait(gone), Promise.GONE)
    if refills:
        then = Promise.REFILLED_IF_FITTING if facts.has_affinity else Promise.REFILLED
        wait = promise("wait", Wait(gone), promise_missing(facts, then), facts.name, ": ")
    yield Cause(
        "Preemption",
        f"{format_count(len(nodes))} {'is' if len(nodes) == 1 else 'are'} being preempted",
        _names(nodes),
        since=min(filter(None, (node.preempted_since for node in nodes)), default=None),
        details=("a preempted Node leaves 7 minutes after its warning at the latest",),
        remedies=_start("preempt") if late else (wait,),
        proofs=_node_proofs(nodes),
    )


def _health(facts: Facts) -> Iterator[Cause]:
    """Yield the cause for the Nodes that stay and have a problem."""
    nodes = find_unhealthy(facts)
    if not nodes:
        return
    moments = [node.problems_since for node in nodes if node.problems_since is not None]
    named = [f"{node.name}: {', '.join(node.problems)}" for node in nodes[:NAMED_MAX]]
    more = [f"{len(nodes) - NAMED_MAX} more"] if len(nodes) > NAMED_MAX else []
    late = any(is_neglected(facts, node) for node in nodes)
    yield Cause(
        "Health",
        f"{format_count(len(nodes))} {'is' if len(nodes) == 1 else 'are'} unhealthy",
        "; ".join([*named, *more]),
        since=min(moments, default=None),
        remedies=_start("cordon") if late else tuple(health_remedies(facts)),
        proofs=_node_proofs(nodes),
    )


def _cordon(facts: Facts) -> Iterator[Cause]:
    """Yield the Nodes that a command or their rack cordons, or whose machine has yet to answer."""
    well = [node for node in facts.counted_nodes if not (node.problems or node.removal)]
    idle = [node for node in well if node.phase == "cordoned" and not node.active]
    # An idle Node is reserved as soon as its machine has answered.
    awaited = [node for node in idle if node.answer_by is not None or node.is_pending]
    nodes = [node for node in idle if is_by_command(split_causes(node.cordon))]
    nodes = [node for node in nodes if node not in awaited]
    told = {node.domain for node in nodes}
    closed = [node for node in find_closed(facts) if node.domain not in told]
    if awaited:
        late = any(is_neglected(facts, node) for node in awaited)
        verb = "has" if len(awaited) == 1 else "have"
        yield Cause(
            "Cordon",
            f"{format_count(len(awaited))} {verb} not answered a cordon yet",
            _names(awaited),
            remedies=_start("cordon") if late else (await_cordon(awaited),),
            proofs=_node_proofs(awaited),
        )
    for found, why in ((nodes, "by command"), (closed, "for others of the same rack")):
        if found:
            verb = "is" if len(found) == 1 else "are"
            yield Cause(
                "Cordon",
                f"{format_count(len(found))} {verb} cordoned {why}",
                _names(found),
                details=tuple(cordon_details(facts, found)),
                remedies=(cordon_remedy(facts, found),),
                proofs=_node_proofs(found),
            )


def _restart(facts: Facts) -> Iterator[Cause]:
    """Yield the healthy Nodes that take no work while they restart, or restart for too long.

    A Node takes work in the verification after its first boot, and shows no cordon.
    """
    nodes = [node for node in facts.counted_nodes if not (node.problems or node.removal)]
    well = [node for node in nodes if node.restarts]
    late = [node for node in well if is_neglected(facts, node)]
    if restarting := late or [node for node in well if node.cordon]:
        verb = "is" if len(restarting) == 1 else "are"
        yield Cause(
            "Cordon",
            f"{format_count(len(restarting))} {verb} being rebooted or verified",
            _names(restarting),
            remedies=_start("cordon") if late else (await_reboot(facts, restarting),),
            proofs=_node_proofs(restarting),
        )


def _reservation(facts: Facts) -> Iterator[Cause]:
    """Yield the Nodes that the NodePool lacks because the control plane uses them."""
    nodes = [node for node in facts.nodes if node.reserved and not node.removal]
    if not nodes or facts.current >= facts.target:
        return
    verb = "is" if len(nodes) == 1 else "are"
    yield Cause(
        "Reservation",
        f"{format_count(len(nodes))} {verb} reserved for the control plane",
        f"{_names(nodes)} {'does' if len(nodes) == 1 else 'do'} not count as current",
        remedies=tuple(reservation_remedies(facts, nodes)),
        proofs=_node_proofs(nodes),
    )


def _start(step: StepName) -> tuple[Remedy, ...]:
    return tuple(map(start_service, ACTS_NEXT[step]))


def _node_proofs(nodes: Iterable[NodeFacts]) -> tuple[Proof, ...]:
    return proofs([(node.position, f"node {node.name}") for node in nodes][:NAMED_MAX])


def _oldest(nodes: list[NodeFacts]) -> list[NodeFacts]:
    """Return the Nodes in the order in which they began to leave or to boot; unknown times last."""
    moments = [(each.preempted_since or each.removal_since or each.created, each) for each in nodes]
    known = [(moment, node) for moment, node in moments if moment is not None]
    first = [node for _, node in sorted(known, key=lambda pair: (pair[0], pair[1].name))]
    return [*first, *(node for moment, node in moments if moment is None)]


def _names(nodes: list[NodeFacts]) -> str:
    names = [node.name for node in nodes[:NAMED_MAX]]
    more = [f"{len(nodes) - NAMED_MAX} more"] if len(nodes) > NAMED_MAX else []
    return ", ".join([*names, *more])
