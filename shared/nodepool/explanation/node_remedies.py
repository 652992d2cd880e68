"""What would let the leaving Nodes of a NodePool go, or cure the Nodes that stay."""

from collections.abc import Iterator
from typing import Final

from nodepool.contract.health import BY_TYPE, cordon_cause
from nodepool.contract.health import Remedy as Cure
from nodepool.contract.moments import rfc3339
from nodepool.explanation.facts import RESTARTING, Domain, Facts, NodeFacts
from nodepool.explanation.leaving import (
    NAMED_MAX,
    PREEMPTED,
    SCALE_DOWN,
    Rack,
    fits_racks,
    is_blocked,
    is_surplus,
    racks_to_empty,
    without_lost,
)
from nodepool.explanation.remedies import (
    DrainNode,
    EditSpec,
    EndWork,
    PreferIdle,
    RebootNode,
    Remedy,
    ScaleTo,
    Wait,
)
from nodepool.explanation.sharing import of_domain, rack_of
from nodepool.explanation.unanswered import count_unchosen

_CURABLE: Final = frozenset(
    cordon_cause(type) for type, cause in BY_TYPE.items() if cause.remedy is not Cure.TRIAGE
)
"""The problems that a reboot cures, as a cordon names them."""


def removal_remedies(facts: Facts) -> Iterator[Remedy]:
    """Yield what would let the Nodes go that are to leave, or keep them.

    While the spec is invalid, the Nodes that were chosen before leave, and no other is chosen.
    """
    validated = facts.checks.get("Validated")
    is_over, is_kept = facts.current > facts.target, count_unchosen(facts) > 0
    is_invalid = validated is not None and validated.status == "False"
    needs_edit = is_over and is_kept and is_invalid
    nodes = facts.counted_nodes if is_over else facts.nodes
    leaving = [node for node in nodes if node.removal]
    blocked = [node for node in leaving if is_blocked(node)]
    silent = [node for node in leaving if node.is_silent and node.removal != PREEMPTED]
    is_idle_only = is_over and facts.idle_only and not needs_edit
    if blocked:
        yield _end_pods(blocked)
    elif is_idle_only and (racks := _to_empty(facts, len(leaving))):
        yield from _empty(facts, racks)
    elif silent:
        yield _await_answer(silent)
    elif not needs_edit:
        yield Remedy("wait until they are gone", Wait())
    if needs_edit:
        yield Remedy("change the spec as the condition Validated says", EditSpec())
        return
    has, stay = facts.current, all(node.removal == SCALE_DOWN for node in leaving)
    if is_over and stay and not facts.autoscaling and fits_racks(facts, has):
        yield Remedy(f"scale {facts.name} to {has}, what it has", ScaleTo(has))


def health_remedies(facts: Facts, nodes: list[NodeFacts]) -> Iterator[Remedy]:
    """Yield what cures or replaces the first of the unhealthy Nodes that stay."""
    waiting = [node for node in nodes if node.phase not in RESTARTING]
    node = min(waiting, key=lambda node: node.is_silent, default=None)
    if node is None:
        text = f"wait until {'it has' if len(nodes) == 1 else 'they have'} rebooted"
        yield Remedy(f"{text}: a Node is verified after its reboot", Wait())
        return
    is_curable = _is_curable(node)
    if not (is_curable or facts.is_valid):
        yield _keep_unhealthy(facts)
        return
    yield from _cure(facts, node, is_curable=is_curable)


def _cure(facts: Facts, node: NodeFacts, *, is_curable: bool) -> Iterator[Remedy]:
    """Yield what cures or replaces an unhealthy Node of a NodePool whose lost Nodes come back."""
    if node.is_silent:
        yield _end_silence(facts, node)
        return
    if facts.cures and not node.blocking_count:
        text = "wait: an unhealthy Node is rebooted or replaced once nothing blocks that"
        yield Remedy(text, Wait())
        return
    if facts.cures:
        yield _end_pods([node])
    force = node.blocking_count > 0
    verb, kind = ("reboot", RebootNode) if is_curable else ("drain", DrainNode)
    command = f"'nodepool {verb} {node.name}{' --force' if force else ''}'"
    then = _leaves(facts) if is_surplus(facts, node) else ""
    if node.has_job:
        text = f"end the Slurm job on {node.name}"
        if then:
            yield Remedy(f"{text}; {then}", EndWork((node.name,), 1))
        else:
            yield Remedy(f"{text}, then {command}", kind(node.name, force, after_work=True))
        return
    what = f"{command} ends what runs there"
    if is_curable:
        yield Remedy(f"{what}; {then or 'it is then cured'}", RebootNode(node.name, force))
        return
    if first := _surplus_first(facts, node):
        yield first
        return
    then = _lost(facts, node)
    action = DrainNode(node.name, force, replaced=not then)
    yield Remedy(f"{what}; {then or 'it is then cured or replaced'}", action)


def _leaves(facts: Facts) -> str:
    return f"it then leaves, and {facts.name} has enough Nodes without it"


def _end_silence(facts: Facts, node: NodeFacts) -> Remedy:
    """Return what replaces a Node that stays and does not answer: nothing can be ended there."""
    if node.is_excused:
        text = (
            f"wait: {node.name} does not answer; no Node is repaired before its silence has lasted "
            "some minutes, or while most Nodes of its zone or its cluster are silent"
        )
        return Remedy(text, Wait())
    if facts.cures:
        return _await_answer([node])
    if first := _surplus_first(facts, node):
        return first
    then = _lost(facts, node)
    text = (
        f"'nodepool drain {node.name}' gives it up: it does not answer, and is treated as dead "
        f"once its time to answer is over; {then or 'it is then replaced'}"
    )
    return Remedy(text, DrainNode(node.name, replaced=not then))


def _await_answer(nodes: list[NodeFacts]) -> Remedy:
    """Return the advice to wait for Nodes that do not answer, and until when."""
    verb = "does" if len(nodes) == 1 else "do"
    moments = [node.answer_by for node in nodes if node.answer_by is not None]
    when = f"at {rfc3339(max(moments))}" if moments else "once its time to answer is over"
    if len(nodes) > 1 and moments:
        when += " at the latest"
    text = (
        f"wait: {_list(nodes)} {verb} not answer; a machine that does not answer is treated as "
        f"dead {when}, and its Node is deleted"
    )
    return Remedy(text, Wait())


def _keep_unhealthy(facts: Facts) -> Remedy:
    """Return what lets a Node be replaced whose NodePool is not valid: until then it would be lost.

    A spec that could not be validated is validated again.
    """
    validated = facts.checks["Validated"]
    if validated.status == "False":
        text = "change the spec as the condition Validated says: until then no Node is replaced"
        return Remedy(text, EditSpec())
    return Remedy(f"wait: no Node is replaced while Validated is {validated.reason}", Wait())


def _lost(facts: Facts, node: NodeFacts) -> str:
    """Return why no other machine replaces a Node that is drained; empty if one does.

    A rack is only completed by machines of its own NVLink domain. Facts do not say which free
    machines satisfy a node affinity.
    """
    size, machines = rack_of(facts), without_lost(facts).machines
    going = sum(_is_going(each) for each in facts.counted_nodes)
    stay = facts.held - going
    if stay - (not node.reserved) >= facts.allowed:
        return _leaves(facts)
    if machines is None:
        return ""
    if size > 1:
        domain = machines.domains.get(node.domain, Domain())
        is_complete = size - domain.held < domain.free
        return "" if is_complete else "its rack lacks it until its machine is repaired"
    # The Nodes that leave already are replaced first.
    if machines.free <= max(0, min(going, facts.allowed - stay)):
        until = "until one is freed, repaired or added"
        until += "" if facts.spot else ", or until a spot Node gives way"
        return f"no machine is free for it, so {facts.name} lacks the Node {until}"
    text = "it is then replaced if a free machine satisfies the node affinity"
    return text if facts.has_affinity else ""


def _is_going(node: NodeFacts) -> bool:
    """Return whether a Node leaves soon; at work, one that is too many stays in another's place."""
    is_spared = node.removal == SCALE_DOWN and node.active and not node.is_silent
    return node.removal != "" and not is_blocked(node) and not is_spared


def _surplus_first(facts: Facts, node: NodeFacts) -> Remedy | None:
    """Return the advice to wait if a Node that is too many would stay in the place of this Node.

    That helps nothing where no Node that is too many answers either.
    """
    surplus = [each for each in facts.counted_nodes if each.removal == SCALE_DOWN]
    if not surplus or count_unchosen(facts) > 0 or not all(each.is_silent for each in surplus):
        return None
    has, which = ("has", "it does") if len(surplus) == 1 else ("have", "they do")
    text = (
        f"wait until {_list(surplus)} {has} left: {which} not answer, and would stay if "
        f"{node.name} left first"
    )
    return Remedy(text, Wait())


def _is_curable(node: NodeFacts) -> bool:
    """Return whether a reboot cures a Node.

    A Node that is drained is replaced if its problem came back soon after a reboot; it stays
    cordoned if it is only rebooted.
    """
    return not node.relapsed and _CURABLE.issuperset(node.problems)


def _end_pods(nodes: list[NodeFacts]) -> Remedy:
    names = tuple(node.name for node in nodes)
    what = "the work that blocks" if any(node.has_job for node in nodes) else "the Pods that block"
    return Remedy(f"end {what} on {_list(nodes)}", EndWork(names, len(names)))


def _list(nodes: list[NodeFacts]) -> str:
    shown = ", ".join(node.name for node in nodes[:NAMED_MAX])
    return f"{shown} and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else shown


def _to_empty(facts: Facts, leaving: int) -> list[Rack]:
    """Return the racks of which one has to become idle; each active Node may be a rack of one.

    Empty where the surplus leaves without that.
    """
    if rack_of(facts) > 1:
        return racks_to_empty(facts)[1]
    left = facts.held - facts.target - leaving
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
        text = "cordon one of its active Nodes and end the work there: it leaves once it is idle"
        names = tuple(node.name for rack in racks for node in rack.nodes)
        yield Remedy(text, EndWork(names, 1))
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
