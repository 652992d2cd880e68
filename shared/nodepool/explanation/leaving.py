"""Describe the Nodes that leave or stay in a NodePool, and what leaving Nodes wait for."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from nodepool.contract.counting import format_count
from nodepool.contract.keys import SLURM_JOB
from nodepool.contract.moments import rfc3339
from nodepool.explanation.facts import Facts
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.remedies import Remedy, ScaleTo
from nodepool.explanation.sharing import down_to_racks, in_racks, preempting, rack_of
from nodepool.explanation.unanswered import INTERNAL_ERROR, has_failed
from nodepool.placement.racks import count_racks, count_surplus

PREEMPTED = "Preempted"
"""The reason for the removal of a Node that is being preempted."""
SCALE_DOWN = "ScaleDown"
"""The reason for the removal of a Node that would stay with a higher target."""
UNHEALTHY = "Unhealthy"
"""The reason for the removal of a Node that is replaced."""
NAMED_MAX = 3
"""The most Nodes that a message names: first Nodes with blocking Pods, then the longest active."""
_UNKNOWN = datetime.max.replace(tzinfo=UTC)


def surplus(facts: Facts) -> str:
    """Describe what becomes of surplus Nodes.

    Nodes that are reserved for the control plane do not count.
    """
    leaving = [node for node in facts.counted_nodes if node.removal]
    left = facts.held - facts.wanted - len(leaving)
    kept = ""
    if left > 0 and (blocker := keeps_surplus(facts)):
        kept = f"{'no other is' if leaving else 'none is'} removed while {blocker}"
    removed = [node for node in leaving if node.removal != PREEMPTED]
    waited_for = [node for node in removed if node.active or node.is_silent]
    count = len(waited_for)
    # A Node that has not joined yet, or that is idle, leaves before any Node at work.
    left -= facts.in_progress - sum(not node.registered for node in leaving)
    active = [node for node in facts.counted_nodes if node.active and not node.removal]
    if rack_of(facts) > 1:
        needed, racks = racks_to_empty(facts)
        left = sum(rack.to_empty for rack in racks[:needed])
        active = list(dict.fromkeys(node for rack in racks for node in rack.nodes))
    else:
        busy = sum(node.registered for node in leaving)
        busy += sum(node.registered for node in active)
        left -= facts.current - busy
    if left > 0 and facts.idle_only and not kept:
        waited_for += active
        count += left
    # No Pod blocks a preemption, whether it has begun or is still to begin.
    shown = [node for node in leaving if node.registered or kept]
    asked = sum(node.asked_since is not None for node in shown)
    preempted = sum(node.removal == PREEMPTED for node in shown) - asked
    giving_way = [_are(preempted, "being preempted"), _are(asked, "to give way")]
    if waited_for:
        texts = [_waits(waited_for, count), *giving_way]
    else:
        marked = len(shown) - preempted - asked
        rest = 0 if kept else facts.current - facts.wanted - len(shown)
        texts = [_are(marked, "being removed"), *giving_way, _are(rest, "to leave")]
    return "; ".join(filter(None, [*texts, kept]))


def _are(count: int, what: str) -> str:
    return f"{count} {'is' if count == 1 else 'are'} {what}" if count > 0 else ""


class Rack(NamedTuple):
    """Active Nodes of which `to_empty` must become idle until their rack leaves."""

    to_empty: int
    nodes: tuple[NodeFacts, ...]


def racks_to_empty(facts: Facts) -> tuple[int, list[Rack]]:
    """Return how many racks must become idle until the surplus leaves, and of which racks they are.

    The smallest racks leave and are named first, each once none of its Nodes is active. No larger
    rack leaves in the place of a smaller rack that is at work; see `surplus_racks` in
    `allocator.choose`.
    """
    racks, needed, busy = staying_racks(facts), 0, list[Rack]()
    wanted = -(-facts.wanted // rack_of(facts))
    for length, count in sorted(count_surplus((each for each, _ in racks), wanted).items()):
        alike = [rack for each, rack in racks if each == length]
        at_work = sorted((rack for rack in alike if rack.to_empty), key=lambda rack: rack.to_empty)
        missing = count - (len(alike) - len(at_work))
        if missing > 0:
            needed += missing
            busy += at_work
    return needed, busy


def staying_racks(facts: Facts) -> list[tuple[int, Rack]]:
    """Return the racks that stay, each with its number of Nodes; each Node may be a rack of one."""
    size, active = rack_of(facts), dict[str, list[NodeFacts]]()
    for node in facts.counted_nodes:
        if node.active and not node.removal:
            active.setdefault(node.domain, []).append(node)
    racks: list[tuple[int, Rack]] = []
    for domain, count in sorted(facts.staying.items()):
        nodes = tuple(active.get(domain, ()))
        idle = count - len(nodes)
        # The idle Nodes of a domain leave first. Only its first rack may lack Nodes.
        for end in range(count % size or size, count + 1, size):
            length = min(end, size)
            racks.append((length, Rack(min(max(0, end - idle), length), nodes)))
    return racks


def keep_nodes(facts: Facts, count: int) -> Iterator[Remedy]:
    """Yield the advice to lower the target to `count` Nodes, if that target may be set.

    A part of a rack is no target, and the autoscaler sets a target of its own. A spot NodePool
    keeps no Nodes by giving up quota with which another NodePool would preempt them.
    """
    if facts.autoscaling or preempting(facts, facts.reserved - count):
        return
    if 0 < count < facts.target and fits_racks(facts, count):
        what = "what it has" if count <= facts.current else "what it has and awaits"
        what = what if count == facts.held else "what it keeps"
        yield Remedy(f"scale {facts.name} to {in_racks(facts, count)}, {what}", ScaleTo(count))


def has_quota_for_all(facts: Facts) -> bool:
    """Return whether quota would grant a target of all Nodes that a NodePool has.

    Quota covers Nodes above the target. A Node that the control plane gave back beyond the grant is
    covered only if it fits the limit.
    """
    limit = facts.limit
    if facts.wanted < facts.target:
        return False
    fits = limit is not None and limit.limit is not None and limit.used <= limit.limit
    return facts.granted is None or facts.current <= facts.granted or fits


def fits_racks(facts: Facts, count: int) -> bool:
    """Return whether a target of `count` Nodes is whole racks, and no more racks stay than that.

    Nodes that Pods keep from leaving stay with a higher target.
    """
    size = rack_of(facts)
    blocked = Counter(node.domain for node in facts.counted_nodes if is_blocked(node))
    stay = blocked + Counter(facts.staying)
    return count == down_to_racks(facts, count) and (
        size == 1 or count_racks(size, stay.values()) * size <= count
    )


def is_blocked(node: NodeFacts) -> bool:
    """Return whether a Node that is to leave waits for Pods, which has no end by itself."""
    return node.removal not in ("", PREEMPTED) and waits_for_work(node)


def waits_for_work(node: NodeFacts) -> bool:
    """Return whether Pods or a Slurm job block the drain of a Node, which has no end by itself.

    Nothing blocks the drain of a Node that does not answer: it has a deadline, or is not begun.
    """
    return node.blocking_count > 0 and not node.is_silent


def without_lost(facts: Facts) -> Facts:
    """Return the facts as they are once the Nodes are gone that are replaced as unhealthy.

    Each of them needs another machine. A Node whose drain waits for Pods may never leave.
    """
    nodes = [node for node in facts.counted_nodes if node.removal == UNHEALTHY]
    lost = Counter(node.domain for node in nodes if not is_blocked(node))
    machines = facts.machines
    if machines is not None:
        domains = {
            name: replace(domain, held=max(0, domain.held - lost[name]))
            for name, domain in machines.domains.items()
        }
        machines = replace(machines, domains=domains)
    current = max(0, facts.current - lost.total())
    return replace(facts, current=current, machines=machines)


def keeps_surplus(facts: Facts) -> str:
    """Return why no further Node is chosen to leave; empty if there is no such cause."""
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
    blocked = {node.name for node in nodes if waits_for_work(node)}
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


def has_job(node: NodeFacts) -> bool:
    """Return whether a Slurm job blocks the drain of a Node."""
    return any(name.startswith(SLURM_JOB) for name, _ in node.blocking)
