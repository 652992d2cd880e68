"""Describe the Nodes that leave a NodePool, and what they wait for."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from nodepool.contract.counting import format_count
from nodepool.contract.moments import rfc3339
from nodepool.explanation.facts import SLURM_JOB, Facts, NodeFacts
from nodepool.explanation.sharing import rack_of, up_to_racks
from nodepool.explanation.unanswered import INTERNAL_ERROR, has_failed

PREEMPTED = "Preempted"
"""The reason for the removal of a Node that is being preempted."""
NAMED_MAX = 3
"""The most Nodes that a message names: first Nodes with blocking Pods, then the longest active."""
_UNKNOWN = datetime.max.replace(tzinfo=UTC)


def surplus(facts: Facts) -> str:
    """Describe what becomes of surplus Nodes.

    Nodes that are reserved for the control plane do not count.
    """
    leaving = [node for node in facts.counted_nodes if node.removal]
    left = facts.held - facts.target - len(leaving)
    kept = ""
    if left > 0 and (blocker := _blocker(facts)):
        kept = f"{'no other is' if leaving else 'none is'} removed while {blocker}"
    if kept and not leaving:
        return kept
    waited_for = [node for node in leaving if node.active or node.is_silent]
    count = len(waited_for)
    staying = [node for node in facts.counted_nodes if not node.removal]
    # A Node that has not joined yet, or that is idle, leaves before any Node at work.
    left -= facts.in_progress - sum(not node.registered for node in leaving)
    if rack_of(facts) > 1:
        left = _in_racks(facts, staying, left)
    else:
        busy = sum(node.registered for node in leaving)
        busy += sum(node.registered and node.active for node in staying)
        left -= facts.current - busy
    if left > 0 and facts.idle_only and not kept:
        waited_for += [node for node in staying if node.active]
        count += left
    if waited_for:
        text = _waits(waited_for, count)
    else:
        joined = sum(node.registered for node in leaving)
        count = len(leaving) if kept else max(joined, facts.current - facts.target)
        text = f"{count} {'is' if count == 1 else 'are'} being removed"
    return f"{text}; {kept}" if kept else text


def _in_racks(facts: Facts, staying: Sequence[NodeFacts], surplus: int) -> int:
    """Return how many active Nodes must become idle until so many surplus Nodes leave in racks.

    A rack leaves once none of its Nodes is active.
    """
    active = Counter(node.domain for node in staying if node.active)
    return sum(sorted(active.values())[: up_to_racks(facts, surplus) // rack_of(facts)])


def _blocker(facts: Facts) -> str:
    """Return the condition because of which no further Node leaves; empty for no such condition."""
    validated = facts.checks.get("Validated")
    if validated is not None and validated.status != "True":
        return f"Validated is {validated.reason}"
    return f"AtTarget is {INTERNAL_ERROR}" if has_failed(facts) else ""


def still_there(facts: Facts) -> str:
    """Return how many Nodes a NodePool that is being deleted still has, and what they wait for.

    Nodes that are reserved for the control plane leave too, though the NodePool does not hold them.
    """
    count = max(facts.held + facts.away, len(facts.nodes))
    verb = "is" if count == 1 else "are"
    waited_for = [node for node in facts.nodes if node.active or node.is_silent]
    waits = f"; {_waits(waited_for, len(waited_for))}" if waited_for else ""
    return f"{format_count(count)} {verb} still to be removed{waits}"


def _waits(nodes: Sequence[NodeFacts], count: int) -> str:
    """Return the Nodes of which `count` are waited for, with what runs there and since when."""
    # Only a Pod that blocks a drain has no deadline, so its Node is named first.
    blocked = {node.name for node in nodes if node.blocking and not node.is_silent}
    first = sorted(nodes, key=lambda n: (n.name not in blocked, _since(n) or _UNKNOWN, n.name))
    named = [f"{node.name}, {work(node)}" for node in first[:NAMED_MAX]]
    if len(first) > NAMED_MAX:
        named.append(f"{len(first) - NAMED_MAX} more")
    which = f"{count} of {len(nodes)}: " if count < len(nodes) else ""
    return f"waits for {which}{'; '.join(named)}"


def work(node: NodeFacts) -> str:
    """Return what runs on an active Node, and since when, or that its machine does not answer."""
    if node.is_silent:
        return "which does not answer"
    if not node.blocking:
        return f"active{since(_since(node))} ({node.work})"
    first = sorted(node.blocking, key=lambda each: each[0].startswith(SLURM_JOB))
    names = [f"{name}{since(moment)}" for name, moment in first]
    if node.blocking_count > len(names):
        names.append(f"{node.blocking_count - len(names)} more")
    pods = "" if names[0].startswith(SLURM_JOB) else "Pods "
    return f"active with {pods}{', '.join(names)}"


def since(moment: datetime | None) -> str:
    """Return the words ` since <moment>`; empty if the moment is not known."""
    return "" if moment is None else f" since {rfc3339(moment)}"


def _since(node: NodeFacts) -> datetime | None:
    return node.active_since or node.created
