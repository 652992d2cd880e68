"""What would let the leaving Nodes of a NodePool go, or cure the Nodes that stay."""

from collections.abc import Iterator
from typing import Final

from nodepool.contract.conditions import Validated
from nodepool.contract.health import BEGINS_AT, BY_TYPE, ENDS_BELOW, WIDE_FROM, cordon_cause
from nodepool.contract.health import Remedy as Cure
from nodepool.contract.moments import rfc3339
from nodepool.contract.phases import RESTARTING
from nodepool.explanation.facts import Facts
from nodepool.explanation.leaving import (
    NAMED_MAX,
    PREEMPTED,
    SCALE_DOWN,
    UNHEALTHY,
    Rack,
    fits_racks,
    has_job,
    has_quota_for_all,
    is_blocked,
    keeps_surplus,
    racks_to_empty,
)
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.outlook import foretell, gets_none, surplus_before
from nodepool.explanation.promises import Promise
from nodepool.explanation.remedies import (
    DrainNode,
    EditSpec,
    EndWork,
    PreferIdle,
    RebootNode,
    Remedy,
    ScaleTo,
    Wait,
    promise,
)
from nodepool.explanation.sharing import in_racks, of_domain, rack_of
from nodepool.explanation.unanswered import count_unchosen

_CURABLE: Final = frozenset(
    cordon_cause(type) for type, cause in BY_TYPE.items() if cause.remedy is not Cure.TRIAGE
)
"""The problems that a reboot cures, as a cordon names them."""


def removal_remedies(facts: Facts) -> Iterator[Remedy]:
    """Yield what would let the Nodes go that are to leave, or keep them.

    While the spec is not valid, the Nodes that were chosen before leave, and no other is chosen.
    """
    is_over = facts.current > facts.wanted
    kept = keeps_surplus(facts) if is_over and count_unchosen(facts) > 0 else ""
    nodes = facts.counted_nodes if is_over else facts.nodes
    leaving = [node for node in nodes if node.removal]
    blocked = [node for node in leaving if is_blocked(node)]
    silent = [node for node in leaving if node.is_silent and node.removal != PREEMPTED]
    is_idle_only = is_over and facts.idle_only and not kept
    if blocked:
        yield from _unblock(facts, blocked, leaving)
    elif is_idle_only and (racks := _to_empty(facts, len(leaving))):
        yield from _empty(facts, racks)
    elif silent:
        yield await_answer(silent)
    elif not kept:
        yield Remedy("wait until they are gone", _until_gone(leaving), Promise.GONE)
    if kept:
        keep = _keep_surplus(facts, kept)
        yield keep
        if keep.action == EditSpec():
            return
    has, stay = facts.current, all(node.removal == SCALE_DOWN for node in leaving)
    may_keep = is_over and stay and has_quota_for_all(facts)
    if may_keep and not facts.autoscaling and fits_racks(facts, has):
        yield Remedy(f"scale {facts.name} to {in_racks(facts, has)}, what it has", ScaleTo(has))


def _unblock(facts: Facts, blocked: list[NodeFacts], leaving: list[NodeFacts]) -> Iterator[Remedy]:
    """Yield how to end the Pods that block; keep unhealthy Nodes that nothing would replace."""
    current = sum(node.registered and not node.reserved for node in leaving)
    is_short = facts.current - current < facts.wanted
    cause = gets_none(facts) if is_short else ""
    lost = [node for node in blocked if cause and node.removal == UNHEALTHY]
    if free := [node for node in blocked if node not in lost]:
        yield _end_pods(free)
    if lost:
        yield _keep_unhealthy(facts, cause)


def _keep_surplus(facts: Facts, cause: str) -> Remedy:
    """Return the advice that lets further Nodes leave; a failed check is tried again."""
    if any(check.reason == Validated.INVALID for check in facts.checks.values()):
        return Remedy("change the spec as the condition Validated says", EditSpec())
    return Remedy(f"wait: no further Node leaves while {cause}", Wait(), Promise.NOTHING)


def find_unhealthy(facts: Facts) -> list[NodeFacts]:
    """Return the Nodes that stay and have a problem."""
    return [node for node in facts.nodes if node.problems and not node.removal]


def health_remedies(facts: Facts) -> Iterator[Remedy]:
    """Yield what cures or replaces the first of the unhealthy Nodes that stay."""
    nodes = find_unhealthy(facts)
    waiting = [node for node in nodes if node.is_silent or node.phase not in RESTARTING]
    node = min(waiting, key=lambda node: node.is_silent, default=None)
    if node is None:
        yield await_reboot(facts, nodes)
    elif (cause := gets_none(facts)) and not _is_curable(node):
        yield _keep_unhealthy(facts, cause)
    elif node.is_silent:
        yield _end_silence(facts, node)
    else:
        yield from _cure(facts, node)


def await_reboot(facts: Facts, nodes: list[NodeFacts]) -> Remedy:
    """Return the advice to wait for Nodes that reboot, and what to do if that does not cure them.

    A Node that did not answer may be healthy after its reboot.
    """
    one = len(nodes) == 1
    text = f"wait until {'it has' if one else 'they have'} rebooted"
    if facts.cures or any(map(_is_curable, nodes)):
        return Remedy(f"{text}: a Node is verified after its reboot", Wait())
    problems = sorted({problem for node in nodes for problem in node.problems})
    which, verb = "it if" if one else "each on which", "has" if len(problems) == 1 else "have"
    text += f", then drain {which} {', '.join(problems)} {verb} not ended"
    return Remedy(text, Wait(), Promise.NOTHING)


def _cure(facts: Facts, node: NodeFacts) -> Iterator[Remedy]:
    """Yield what cures or replaces an unhealthy Node that answers."""
    is_curable, force = _is_curable(node), node.blocking_count > 0
    verb, kind = ("reboot", RebootNode) if is_curable else ("drain", DrainNode)
    then = foretell(facts, node, is_cured=is_curable)
    if facts.cures and not force:
        what = "rebooted" if is_curable else "drained"
        text = f"wait: {node.name} is {what} once nothing blocks that"
        yield promise(text, Wait((node.name,)), then, facts.name)
        return
    if surplus := surplus_before(facts, node, is_cured=is_curable):
        yield _await_surplus(surplus, node)
        return
    if facts.cures:
        yield _end_pods([node], then)
    if then is Promise.ENOUGH and node.active:
        # In a Kubernetes cluster, Pods outlast a reboot, and keep a Node that is one too many.
        verb, kind = "drain", DrainNode
    command = f"'nodepool {verb} {node.name}{' --force' if force else ''}'"
    if has_job(node):
        text = f"end the Slurm job on {node.name}"
        if then is Promise.ENOUGH:
            yield promise(text, EndWork((node.name,), 1), then, facts.name)
        else:
            yield Remedy(f"{text}, then {command}", kind(node.name, force, after_work=True), then)
        return
    text = f"{command} ends what runs there"
    yield promise(text, kind(node.name, force), then, facts.name)


def _end_silence(facts: Facts, node: NodeFacts) -> Remedy:
    """Return what replaces a Node that stays and does not answer: nothing can be ended there."""
    if node.answer_by is not None:
        return await_answer([node])
    if node.is_excused:
        text = (
            f"wait: {node.name} does not answer; unless it is drained, no Node is repaired before "
            f"its silence has lasted some minutes, or while at least {WIDE_FROM} Nodes of its zone "
            f"or its cluster are silent, from {BEGINS_AT:.0%} of them until fewer than "
            f"{ENDS_BELOW:.0%}"
        )
        return Remedy(text, Wait(), Promise.NOTHING)
    if facts.cures:
        return await_answer([node])
    if surplus := surplus_before(facts, node, is_cured=False):
        return _await_surplus(surplus, node)
    text = (
        f"'nodepool drain {node.name}' gives it up: it does not answer, and is treated as dead "
        "once its time to answer is over"
    )
    then = foretell(facts, node, is_cured=False)
    return promise(text, DrainNode(node.name), then, facts.name)


def await_answer(
    nodes: list[NodeFacts], then: Promise = Promise.GONE, *, may_stay: bool = True
) -> Remedy:
    """Return the advice to wait for Nodes that do not answer, and until when.

    may_stay: whether the removal of such a Node may be cancelled until then.
    """
    verb = "does" if len(nodes) == 1 else "do"
    moments = [node.answer_by for node in nodes if node.answer_by is not None]
    when = f"at {rfc3339(max(moments))}" if moments else "once its time to answer is over"
    if len(nodes) > 1 and moments:
        when += " at the latest"
    text = (
        f"wait: {_list(nodes)} {verb} not answer; a machine that does not answer is treated as "
        f"dead {when}, and its Node is deleted{' unless it may stay by then' if may_stay else ''}"
    )
    return Remedy(text, _until_gone(nodes), then)


def await_cordon(nodes: list[NodeFacts]) -> Remedy:
    """Return the advice to wait for Nodes that may still answer their cordon."""
    if any(node.answer_by is not None for node in nodes):
        return await_answer(nodes, Promise.NOTHING)
    text = f"wait until {'it has' if len(nodes) == 1 else 'they have'} answered"
    return Remedy(text, Wait(), Promise.NOTHING)


def _keep_unhealthy(facts: Facts, cause: str) -> Remedy:
    """Return the advice for an unhealthy Node that nothing would replace.

    A failed check is tried again.
    """
    if any(check.reason == Validated.INVALID for check in facts.checks.values()):
        text = "change the spec as the condition Validated says: until then no Node is replaced"
        return Remedy(text, EditSpec(), Promise.NOTHING)
    # A failure of the allocator may concern other decisions.
    verb = "is sure to be" if cause.startswith("AtTarget") else "is"
    return Remedy(f"wait: no Node {verb} replaced while {cause}", Wait(), Promise.NOTHING)


def _await_surplus(surplus: list[NodeFacts], node: NodeFacts) -> Remedy:
    """Return the advice to wait for silent Nodes that would stay in the place of this Node."""
    has, which = ("has", "it does") if len(surplus) == 1 else ("have", "they do")
    text = (
        f"wait until {_list(surplus)} {has} left: {which} not answer, and would stay if "
        f"{node.name} left first"
    )
    return Remedy(text, _until_gone(surplus), Promise.GONE)


def _until_gone(nodes: list[NodeFacts]) -> Wait:
    return Wait(tuple(node.name for node in nodes))


def _is_curable(node: NodeFacts) -> bool:
    """Return whether a reboot cures a Node.

    A Node that is drained is replaced if its problem came back soon after a reboot; it stays
    cordoned if it is only rebooted.
    """
    return not node.relapsed and _CURABLE.issuperset(node.problems)


def _end_pods(nodes: list[NodeFacts], then: Promise = Promise.GONE) -> Remedy:
    names = tuple(node.name for node in nodes)
    what = "the work that blocks" if any(map(has_job, nodes)) else "the Pods that block"
    return Remedy(f"end {what} on {_list(nodes)}", EndWork(names, len(names)), then)


def _list(nodes: list[NodeFacts]) -> str:
    shown = ", ".join(node.name for node in nodes[:NAMED_MAX])
    return f"{shown} and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else shown


def _to_empty(facts: Facts, leaving: int) -> list[Rack]:
    """Return the racks of which one has to become idle; each active Node may be a rack of one.

    Empty where the surplus leaves without that.
    """
    if rack_of(facts) > 1:
        return racks_to_empty(facts)[1]
    left = facts.held - facts.wanted - leaving
    staying = [node for node in facts.counted_nodes if not node.removal]
    active = [node for node in staying if node.active]
    if left <= 0 or len(staying) - len(active) >= left:
        return []
    return [Rack(1, (node,)) for node in active]


def _empty(facts: Facts, racks: list[Rack]) -> Iterator[Remedy]:
    """Yield how a Node, or a rack, becomes idle so that it leaves; a silent Node is given up."""
    silent = [node for rack in racks for node in rack.nodes if node.is_silent]
    racks = [rack for rack in racks if not any(node.is_silent for node in rack.nodes)]
    if not racks:
        yield _end_silence(facts, silent[0])
        return
    count, first = racks[0]
    if rack_of(facts) == 1:
        names = tuple(node.name for rack in racks for node in rack.nodes)
        # A Node that is reserved once it is idle may stay, and counts no more.
        may_stay = any(node.is_pending for rack in racks for node in rack.nodes)
        leaves = "leaves, or is reserved for the control plane," if may_stay else "leaves"
        text = f"cordon one of its active Nodes and end the work there: it {leaves} once it is idle"
        yield Remedy(text, EndWork(names, 1), Promise.ENDS if may_stay else Promise.GONE)
    else:
        names = tuple(node.name for node in first)
        nodes = "the active Node" if len(names) == 1 else f"all {count} active Nodes"
        if count < len(names):
            nodes = f"{count} of the {len(names)} active Nodes"
        text = f"cordon {nodes} of {of_domain(first[0].domain)} and end the work there"
        yield Remedy(text, EndWork(names, count))
    if not any(node.blocking_count for rack in racks for node in rack.nodes):
        text = "set lifecycle.scaleDownStrategy to PreferIdle, which removes active Nodes too"
        yield Remedy(text, PreferIdle())
