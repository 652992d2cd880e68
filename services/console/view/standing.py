"""How a NodePool stands: who must act, the state as words, and the bar of its Nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from console.view.bar import Part, build_bar
from console.view.model import Deadline, Pool
from console.view.nodes import name_blockers
from console.view.words import Look, Word
from nodepool.contract.counting import format_count
from nodepool.contract.documents import condition, field, items, text
from nodepool.explanation.leaving import has_job, waits_for_work
from nodepool.explanation.node_remedies import find_unhealthy, health_remedies
from nodepool.explanation.remedies import Wait


class Group(StrEnum):
    """Who must act about a NodePool, in the order in which pages show them."""

    PERSON = "person"
    WAITS = "waits"
    MOVES = "moves"
    WELL = "well"


TITLES: Final = {
    Group.PERSON: ("Needs a person", "nothing changes until a person acts"),
    Group.WAITS: ("Waiting", "gets Nodes as machines become free"),
    Group.MOVES: ("In progress", "changes by itself, or as work ends"),
    Group.WELL: ("At target", "has the Nodes that it wants"),
}
"""The title of each group, and what it means."""
WAIT: Final = "wait:"
"""The begin of advice to wait, which is no name."""
_QUOTA: Final = {"Over": "Over quota", "NotSet": "No quota"}
_CHECKS: Final = ("Validated", "Quota", "Capacity", "AtTarget", "NodesRemoved")
_NAMING: Final = ("Removal", "Preemption", "Health", "Cordon")
"""The causes whose message names Nodes, and whose title says what happens to them."""


@dataclass(frozen=True, slots=True)
class Next:
    """What happens to a Node, and to `others` with the same deadline."""

    name: str
    others: int
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class Standing:
    """How a NodePool stands.

    word, also: its state, and a second problem.
    why, helps: one sentence why it is not well, and what helps; empty if it is well.
    since: the start of the state.
    bar: its Nodes and what is missing; empty at target.
    next: what happens to its Nodes next, and when; None if nothing has a deadline.
    unhealthy, missing: how many of its Nodes are unhealthy, and how many are missing.
    """

    group: Group
    word: Word
    also: tuple[Word, ...]
    why: str
    helps: str
    since: datetime | None
    bar: tuple[Part, ...]
    next: Next | None = None
    unhealthy: int = 0
    missing: int = 0

    @property
    def is_quiet(self) -> bool:
        """Return whether the NodePool and all its Nodes are well, so that nothing is explained."""
        return self.group is Group.WELL and not self.also


def stand(pool: Pool) -> Standing:
    """Return how a NodePool stands."""
    group, word = _judge(pool)
    decisive: object = None
    words = Counter(member.word.text for member in pool.members)
    unhealthy = words["Unhealthy"]
    problems = tuple(_problems(pool, words))
    if unhealthy and _leaves_ill_nodes(pool):
        word = problems[0] if group is Group.WELL else word
        if not passes(pool):
            # The causes that come before may end by themselves.
            decisive = find_health(pool) if group is not Group.PERSON else None
            group = Group.PERSON
        elif group is Group.WELL:
            group = Group.WAITS
    also = tuple(each for each in problems if each.text != word.text)
    why, helps = _explain(pool, decisive) if group is not Group.WELL or also else ("", "")
    if not why and also:
        why = _say_blocked(pool)
    if not why and pool.facts.autoscaled:
        why = f"The autoscaler changed {pool.facts.autoscaled}."
    since, bar = _since(pool, word), _bar(pool, word)
    missing = sum(part.count for part in bar if part.about != "here")
    return Standing(group, word, also, why, helps, since, bar, _next(pool), unhealthy, missing)


def _leaves_ill_nodes(pool: Pool) -> bool:
    """Return whether an unhealthy Node is neither cured nor replaced before a person acts."""
    if pool.facts.cures or pool.facts.deleting:
        return False
    stays = ("production", "cordoned")
    return any(
        node.problems and node.phase in stays and not node.removal for node in pool.facts.nodes
    )


def find_health(pool: Pool) -> object:
    """Return the cause of `explain` about unhealthy Nodes, with what helps; None if none is known.

    What helps is decided there, so that no page gives advice that another one contradicts.
    """
    causes = items(pool.explanation, "causes")
    return next((cause for cause in causes if text(cause, "cause") == "Health"), None)


def passes(pool: Pool) -> bool:
    """Return whether `explain` advises to wait, as the control plane does something by itself.

    Until the gateway has answered, the rule of `explain` looks at what the console knows, so that
    no NodePool is said to need a person for a moment.
    """
    if pool.explanation is None:
        first = next(health_remedies(pool.facts), None) if find_unhealthy(pool.facts) else None
        return first is not None and isinstance(first.action, Wait)
    return _find_advice(find_health(pool)) == "Wait"


def _find_advice(cause: object) -> str:
    """Return the kind of the first advice about a cause; empty if there is no advice."""
    actions = items(cause, "actions")
    return text(actions[0], "kind") if actions else ""


def _next(pool: Pool) -> Next | None:
    """Return the first deadline of its Nodes."""
    due = [(each, member.place.name) for member in pool.members for each in member.deadlines]
    if not due:
        return None
    first, name = min(due, key=lambda each: (each[0].at, each[1]))
    same = sum(each.at == first.at and each.about == first.about for each, _ in due)
    return Next(name, same - 1, first)


def _judge(pool: Pool) -> tuple[Group, Word]:
    """Return who must act about what keeps a NodePool from its target, and the state as a word.

    What looks like progress needs a person if `explain` says first that a service does not run, or
    that Pods have to end which block without a deadline. With IdleOnly, Nodes leave as work ends.
    """
    group, word = _state(pool)
    kind = _find_advice(next(iter(items(pool.explanation, "causes")), None))
    is_blocked = kind == "EndWork" and not pool.facts.idle_only
    if group in (Group.WAITS, Group.MOVES) and (kind == "StartService" or is_blocked):
        return Group.PERSON, word if word.look == "out" else Word("act", word.text)
    return group, word


def _state(pool: Pool) -> tuple[Group, Word]:
    """Return the first group that fits, and the word for the state."""
    facts = pool.facts
    checks = {kind: facts.checks[kind] for kind in _CHECKS if kind in facts.checks}
    if facts.deleting:
        return Group.MOVES, Word("out", "Deleting")
    if "Validated" in checks and checks["Validated"].reason == "Invalid":
        return Group.PERSON, Word("act", "Invalid")
    if any(check.reason == "InternalError" for check in checks.values()):
        return Group.PERSON, Word("bad", "Internal error")
    short = facts.current < facts.target
    if "Quota" in checks and checks["Quota"].reason in _QUOTA and (short or _is_stalled(pool)):
        return Group.PERSON, Word("act", _QUOTA[checks["Quota"].reason])
    capacity = checks.get("Capacity")
    if short and capacity is not None and capacity.status == "False":
        return Group.WAITS, Word("wait", "Waits for capacity")
    return _moving(pool)


def _moving(pool: Pool) -> tuple[Group, Word]:
    facts = pool.facts
    if facts.in_progress:
        return Group.MOVES, Word("go", f"{facts.in_progress} booting")
    leaving = sum(bool(node.removal) for node in facts.nodes)
    if leaving:
        return Group.MOVES, Word("out", f"Losing {format_count(leaving)}")
    if facts.current > facts.target:
        return Group.MOVES, Word("go", f"{facts.current - facts.target} over target")
    if not pool.is_at_target:
        return Group.MOVES, Word("go", "Being checked" if not facts.checks else "Under target")
    return Group.WELL, Word("ok", "At target")


def _is_stalled(pool: Pool) -> bool:
    return condition(pool.document, "Stalled", "status") == "True"


def _problems(pool: Pool, words: Mapping[str, int]) -> Iterator[Word]:
    """Yield what is wrong with single Nodes, of which so many have each word."""
    leaving = sum(bool(node.removal) for node in pool.facts.nodes)
    # A Node that is drained by a person may wait for its Pods without a deadline.
    draining = sum(
        member.word.text == "Draining" and not member.facts.removal for member in pool.members
    )
    if unhealthy := words["Unhealthy"]:
        yield Word("bad", f"{unhealthy} unhealthy")
    if leaving and not pool.facts.deleting:
        yield Word("out", f"Losing {format_count(leaving)}")
    if draining:
        yield Word("out", f"{draining} draining")
    if cordoned := words["Cordoned"]:
        yield Word("off", f"{cordoned} cordoned")


def _explain(pool: Pool, decisive: object) -> tuple[str, str]:
    """Return a cause and its first remedy; without causes, the message of AtTarget.

    decisive: the cause that decides how the NodePool stands; None if it is the first one.
    """
    for cause in filter(None, (decisive, *items(pool.explanation, "causes"))):
        helps = field(cause, "helps")
        first = str(helps[0]) if isinstance(helps, list) and helps else ""
        name = pool.place.name
        title, message = text(cause, "title"), text(cause, "message")
        why = message or title
        if message and text(cause, "cause") in _NAMING:
            why = f"{title}: {message}"
        return sentence(why, name), sentence(first, name)
    if pool.is_at_target:
        return "", ""
    return sentence(condition(pool.document, "AtTarget", "message")), ""


def _say_blocked(pool: Pool) -> str:
    """Return which Pods the Nodes that people drain wait for; empty if no Node waits."""
    drained = [each for each in pool.members if each.facts.phase == "draining"]
    waiting = [each for each in drained if waits_for_work(each.facts) and not has_job(each.facts)]
    if not waiting:
        return ""
    first, *others = waiting
    wait = f"and {len(others)} more wait" if others else "waits"
    return f"{first.place.name} {wait} for Pods: {name_blockers(first.facts)} must end."


def sentence(words: str, name: str = "") -> str:
    """Return words as a sentence, with a full stop and, unless it is a name, a capital letter.

    name: the name of the NodePool, which keeps its case, as do names of fields.
    """
    words = words.strip()
    if not words:
        return ""
    first = words.split(maxsplit=1)[0]
    is_plain = first == WAIT or (first.isalpha() and first.islower() and first != name)
    begin = words[0].upper() if is_plain else words[0]
    return f"{begin}{words[1:]}{'' if words.endswith(('.', '!', '?')) else '.'}"


def _since(pool: Pool, word: Word) -> datetime | None:
    """Return the start of a state: of AtTarget, or of what first happened to the Nodes of it."""
    check = pool.facts.checks.get("AtTarget")
    starts: list[datetime | None] = []
    if word.look == "out" and not pool.facts.deleting:
        starts = [each.preempted_since or each.removal_since for each in pool.facts.nodes]
    elif word.text.endswith(" unhealthy"):
        starts = [each.problems_since for each in pool.facts.nodes]
    if known := [start for start in starts if start is not None]:
        return min(known)
    return pool.facts.deleting_since or (check.since if check is not None else None)


def _bar(pool: Pool, word: Word) -> tuple[Part, ...]:
    """Return the current, the coming and the missing Nodes; nothing at target."""
    facts = pool.facts
    missing = max(0, facts.target - facts.current - facts.in_progress)
    if facts.deleting or not missing + facts.in_progress:
        return ()
    look: Look = word.look if word.look in ("act", "bad", "wait", "out") else "go"
    return build_bar(
        (("has", facts.current, "here"), ("go", facts.in_progress, "booting"), (look, missing, ""))
    )
