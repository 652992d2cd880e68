"""The page of a Node: where it is on its way, and what it waits for."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from console.view.model import Deadline, Member, Pool
from console.view.nodes import ON_ITS_WAY, work_of
from console.view.remedies import Remedy, list_remedies
from console.view.standing import find_health, passes
from console.view.times import parse_moment
from console.view.words import Look, Word
from nodepool.contract.cordons import can_be_uncordoned, list_kept, split_causes
from nodepool.contract.counting import format_count
from nodepool.contract.documents import Document, condition, field, text
from nodepool.contract.health import cordon_cause, is_problem
from nodepool.contract.node_failures import ADMIN_REBOOT
from nodepool.explanation.leaving import UNHEALTHY, has_job, waits_for_work
from nodepool.explanation.node_facts import NodeFacts

PATH: Final = ("booting", "verifying", "production", "cordoned", "draining", "rebooting")
"""The phases of a Node, in the order in which a page draws them."""


@dataclass(frozen=True, slots=True)
class Step:
    """A phase on the path of a Node."""

    name: str
    is_now: bool


@dataclass(frozen=True, slots=True)
class NodePage:
    """What the page of a Node shows.

    say: the state of the Node in sentences. since: when it began; None if unknown.
    then: what the Node waits for without a deadline, and whether a person must act.
    helps: what helps against its problems, if the NodePool leaves them to people.
    """

    member: Member
    word: Word
    say: str
    since: datetime | None
    instance_type: str
    zone: str
    path: tuple[Step, ...]
    deadlines: tuple[Deadline, ...]
    conditions: tuple[tuple[str, Word, str, object], ...]
    more_blocking: int
    then: str
    helps: tuple[Remedy, ...]
    is_spot: bool


def build_node_page(pool: Pool, member: Member) -> NodePage:
    """Return the page of a Node of a NodePool."""
    node, document = member.facts, member.document
    labels = field(document, "metadata", "labels")
    return NodePage(
        member=member,
        word=member.word,
        say=_say(node, document),
        since=_since(node, document),
        instance_type=text(labels, "node.kubernetes.io/instance-type"),
        zone=text(labels, "topology.kubernetes.io/zone") or pool.zone,
        path=tuple(Step(name, name == node.phase) for name in PATH),
        deadlines=member.deadlines,
        conditions=tuple(_condition(each) for each in _conditions(document)),
        more_blocking=max(0, node.blocking_count - len(node.blocking)),
        then=_await(pool, node),
        helps=tuple(_find_help(pool, node)) if _is_left(pool, node) else (),
        is_spot=pool.facts.spot,
    )


def _say(node: NodeFacts, document: Document) -> str:
    """Return the state of a Node in sentences."""
    still = f" It still runs {work_of(node)}." if node.active else ""
    why = f" ({node.cordon})" if node.cordon else ""
    if node.preempted_since is not None:
        return f"This Node is being preempted.{still}"
    if node.phase in ON_ITS_WAY:
        return f"This Node is {node.phase}{why}."
    if node.problems:
        return f"{'; '.join(_problems(document))}.{still}"
    if node.removal:
        return f"This Node leaves its NodePool ({node.removal}).{still}"
    if node.phase == "draining":
        return f"This Node is being drained{why}.{still}"
    if node.phase == "cordoned":
        return f"This Node is cordoned{why}.{still}"
    return f"Runs {work_of(node)}." if node.active else "Nothing runs on this Node."


def _problems(document: Document) -> Iterator[str]:
    """Yield each problem as the condition that reports it does, with its name."""
    for each in _conditions(document):
        if is_problem(text(each, "type"), text(each, "status")):
            name, message = cordon_cause(text(each, "type")), text(each, "message")
            yield f"{message.rstrip('.')} ({name})" if message else name


def _since(node: NodeFacts, document: Document) -> datetime | None:
    """Return since when the state of a Node lasts; None if that is unknown."""
    if node.preempted_since is not None:
        return node.preempted_since
    if node.phase in ON_ITS_WAY:
        return None if node.registered else node.created
    if node.problems:
        return node.problems_since
    if node.removal:
        return node.removal_since
    if node.phase != "production":
        return parse_moment(condition(document, "PendingPhaseState", "lastTransitionTime"))
    return node.active_since if node.active else node.idle_since


def _await(pool: Pool, node: NodeFacts) -> str:
    """Return what a Node that is not well waits for, and whether a person must act."""
    if node.phase in ON_ITS_WAY or _has_deadline(node):
        return ""
    if has_job(node) and waits_for_work(node):
        return "No deadline: a Slurm job holds this Node until it ends."
    is_leaving = node.removal or node.phase == "draining"
    if waits_for_pods(pool, node):
        pods = format_count(node.blocking_count, "Pod")
        pods += " that blocks" if node.blocking_count == 1 else " that block"
        what = "drained" if is_leaving else "rebooted or replaced"
        return f"No deadline: it is {what} once {pods} a drain ended."
    if _is_left(pool, node) and not passes(pool):
        text = "No deadline: this NodePool leaves unhealthy Nodes to people."
        is_first = pool.explanation is None or any(_find_help(pool, node))
        return text if is_first else f"{text} Its page says which Node to begin with."
    if is_leaving or node.problems:
        return ""
    causes = split_causes(node.cordon)
    if node.phase == "cordoned" and not node.reserved and ADMIN_REBOOT not in causes:
        kept = ", ".join(list_kept(causes))
        until = f"this is over: {kept}" if kept else "a person uncordons it"
        return f"No deadline: nothing new is scheduled on it until {until}."
    return ""


def _has_deadline(node: NodeFacts) -> bool:
    """Return whether a Node that has joined leaves, or is given up, at a known moment."""
    return node.preempted_since is not None or node.answer_by is not None


def _is_left(pool: Pool, node: NodeFacts) -> bool:
    """Return whether the NodePool leaves an unhealthy Node to people."""
    is_leaving = node.removal or node.phase == "draining" or node.preempted_since is not None
    is_ill = bool(node.problems) and node.phase not in ON_ITS_WAY
    return is_ill and not is_leaving and not pool.facts.cures


def _find_help(pool: Pool, node: NodeFacts) -> Iterator[Remedy]:
    """Yield the remedies for an unhealthy Node, as the page of its NodePool shows them."""
    for each in list_remedies(find_health(pool), pool.place):
        if node.name in each.text:
            yield each


def waits_for_pods(pool: Pool, node: NodeFacts) -> bool:
    """Return whether a Node is to be drained or cured once its Pods end, by no deadline."""
    if not waits_for_work(node) or has_job(node) or _has_deadline(node):
        return False
    is_cured = bool(node.problems) and pool.facts.cures
    return bool(node.removal) or node.phase == "draining" or is_cured


def find_verbs(pool: Pool, node: NodeFacts) -> set[str]:
    """Return the actions that have an effect on a Node now."""
    is_preempted = node.preempted_since is not None
    is_held = node.phase in ("cordoned", "draining") and not node.removal
    waits = node.phase == "draining" and not node.forced and waits_for_work(node)
    fits = {
        "cordon": node.phase == "production",
        "uncordon": is_held and can_be_uncordoned(split_causes(node.cordon)),
        # Only a forced drain changes a drain that waits; other removals decide that themselves.
        "drain": (node.phase in ("production", "cordoned") and not node.removal)
        or (waits and node.removal in ("", UNHEALTHY)),
        "reboot": node.registered and not node.removal and node.phase != "rebooting",
        "preempt": pool.facts.spot and node.registered and not is_preempted,
        "acknowledge": node.is_warned,
    }
    return {verb for verb, has_effect in fits.items() if has_effect}


def _conditions(document: object) -> list[object]:
    found = field(document, "status", "conditions")
    return [*found] if isinstance(found, list | tuple) else []


def _condition(each: object) -> tuple[str, Word, str, object]:
    name, status = text(each, "type"), text(each, "status")
    is_well = status == ("True" if name in ("CWRegistered", "Ready") else "False")
    look: Look = "ok" if is_well else "ask" if status == "Unknown" else "wait"
    if is_problem(name, status):
        look = "bad"
    if name == "CWActive":
        look = "ok" if status == "True" else "idle"
    shown = Word(look, text(each, "reason") or status)
    return name, shown, text(each, "message"), field(each, "lastTransitionTime")
