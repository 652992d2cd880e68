"""What keeps a NodePool from its target, ranked, each with its proof in the log and what helps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from nodepool.explanation import helping, leaving
from nodepool.explanation.facts import Check, Facts, NodeFacts
from nodepool.explanation.leaving import NAMED_MAX, counted, since

Kind = Literal[
    "Validated",
    "Deletion",
    "Quota",
    "Capacity",
    "Booting",
    "Removal",
    "Preemption",
    "Health",
    "InternalError",
    "Progress",
]
"""What a cause is about, in the order in which causes are ranked."""
CHECKS = ("Validated", "Quota", "Capacity")
"""The conditions that keep a NodePool from growing, in the order in which they are checked."""
PREEMPTED = "Preempted"
"""Why a Node is to leave that is being preempted."""
INTERNAL_ERROR: Final = "InternalError"


@dataclass(frozen=True, slots=True)
class Proof:
    """Where in the log something lies that proves a cause, and what it is about."""

    position: int
    about: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that keeps a NodePool from its target.

    title: what is the case, in a few words; `message` says more, where there is more to say.
    since: since when; None where that is not known.
    details: further facts, each one sentence without a full stop.
    helps: what would help, each an instruction without a full stop, the smallest change first.
    proofs: where in the log it can be seen.
    """

    kind: Kind
    title: str
    message: str = ""
    since: datetime | None = None
    details: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()

    @property
    def clause(self) -> str:
        """The cause without its moment, as part of a sentence."""
        return f"{self.title}: {self.message}" if self.message else self.title

    @property
    def dated(self) -> str:
        """The cause with its moment, as part of a sentence."""
        dated = f"{self.title}{since(self.since)}"
        return f"{dated}: {self.message}" if self.message else dated


def blocking(facts: Facts) -> list[Cause]:
    """The checks that keep the NodePool from growing, ranked."""
    failing = [check for kind in CHECKS if (check := facts.checks.get(kind)) is not None]
    failing = [check for check in failing if check.status != "True"]
    return [
        *(_of_check(facts, check) for check in failing if check.reason != INTERNAL_ERROR),
        *(_internal(check) for check in failing if check.reason == INTERNAL_ERROR),
    ]


def causes(facts: Facts) -> list[Cause]:
    """All that keeps the NodePool from its target, or from its end, ranked; empty for nothing."""
    # While it is being deleted nothing is checked: old verdicts do not keep it from its end.
    blocked = [] if facts.deleting else blocking(facts)
    determined = [cause for cause in blocked if cause.kind != INTERNAL_ERROR]
    ranked = [
        *(cause for cause in determined if cause.kind == "Validated"),
        *_deletion(facts),
        *(cause for cause in determined if cause.kind != "Validated"),
        *_booting(facts),
        *_removal(facts),
        *_preemption(facts),
        *_health(facts),
        *(cause for cause in blocked if cause.kind == INTERNAL_ERROR),
        *_undetermined(facts),
    ]
    return ranked or list(_progress(facts))


def _of_check(facts: Facts, check: Check) -> Cause:
    own = [(check.position, f"condition {check.type}")]
    cause = Cause("Validated", _title(check), _message(check), check.since, proofs=proofs(own))
    match check.type:
        case "Quota":
            return replace(
                cause,
                kind="Quota",
                details=tuple(helping.quota_details(facts)),
                helps=tuple(helping.quota_helps(facts)),
                proofs=proofs([*own, *helping.quota_proofs(facts)]),
            )
        case "Capacity":
            return replace(
                cause,
                kind="Capacity",
                details=tuple(helping.capacity_details(facts)),
                helps=tuple(helping.capacity_helps(facts, check.reason)),
                proofs=proofs([*own, *helping.capacity_proofs(facts)]),
            )
        case _:
            return replace(cause, helps=("change the spec as the message says",))


def _internal(check: Check) -> Cause:
    return Cause(
        INTERNAL_ERROR,
        _title(check),
        _message(check),
        since=check.since,
        helps=("wait: it is tried again after 1, 5 and 15 minutes, then every 15",),
        proofs=proofs([(check.position, f"condition {check.type}")]),
    )


def _undetermined(facts: Facts) -> Iterator[Cause]:
    for kind in ("AtTarget", "NodesRemoved"):
        check = facts.checks.get(kind)
        if check is not None and check.reason == INTERNAL_ERROR:
            yield _internal(check)


def _deletion(facts: Facts) -> Iterator[Cause]:
    if not facts.deleting:
        return
    check = facts.checks.get("NodesRemoved")
    position = check.position if check is not None else facts.position
    blocked = any(node.active for node in facts.nodes)
    yield Cause(
        "Deletion",
        "it is being deleted",
        leaving.still_there(facts),
        since=facts.deleting_since,
        helps=("end the Pods that block",) if blocked else ("wait until its Nodes are gone",),
        proofs=(
            *proofs([(position, "condition NodesRemoved")]),
            *_node_proofs(node for node in facts.nodes if node.active or node.removal),
        ),
    )


def _booting(facts: Facts) -> Iterator[Cause]:
    if not facts.in_progress or facts.deleting:
        return
    nodes = _oldest([node for node in facts.nodes if not node.registered])
    one = facts.in_progress == 1
    yield Cause(
        "Booting",
        f"{facts.in_progress} {'is' if one else 'are'} in progress",
        f"{_names(nodes)} {'has' if len(nodes) == 1 else 'have'} not joined yet" if nodes else "",
        since=next((node.created for node in nodes), None),
        helps=(f"wait until {'it joins' if one else 'they join'} the cluster",),
        proofs=_node_proofs(nodes),
    )


def _removal(facts: Facts) -> Iterator[Cause]:
    leave = [node for node in facts.nodes if node.removal and node.removal != PREEMPTED]
    over = facts.current > facts.target
    if facts.deleting or not (over or leave):
        return
    moments = [node.removal_since for node in leave if node.removal_since is not None]
    shown = leave or [node for node in facts.nodes if node.active]
    if over:
        title = f"it has {counted(facts.current - facts.target)} too many"
        message = leaving.surplus(facts)
    else:
        title = f"{counted(len(leave))} {'is' if len(leave) == 1 else 'are'} to leave"
        message = _names(leave)
    at_target = facts.checks.get("AtTarget")
    began = at_target.since if over and at_target is not None else None
    yield Cause(
        "Removal",
        title,
        message,
        since=began or min(moments, default=None),
        helps=tuple(helping.removal_helps(facts)),
        proofs=_node_proofs(shown),
    )


def _preemption(facts: Facts) -> Iterator[Cause]:
    nodes = _oldest([node for node in facts.nodes if node.removal == PREEMPTED])
    if not nodes or facts.deleting:
        return
    yield Cause(
        "Preemption",
        f"{counted(len(nodes))} {'is' if len(nodes) == 1 else 'are'} being preempted",
        _names(nodes),
        since=next((node.removal_since for node in nodes), None),
        details=("a preempted Node leaves 7 minutes after its cordon at the latest",),
        helps=("wait: the NodePool refills by itself when machines are free",),
        proofs=_node_proofs(nodes),
    )


def _health(facts: Facts) -> Iterator[Cause]:
    """The Nodes that stay and have a problem."""
    nodes = [node for node in facts.nodes if node.problems and not node.removal]
    if not nodes or facts.deleting:
        return
    moments = [node.problems_since for node in nodes if node.problems_since is not None]
    named = [f"{node.name}: {', '.join(node.problems)}" for node in nodes[:NAMED_MAX]]
    more = [f"{len(nodes) - NAMED_MAX} more"] if len(nodes) > NAMED_MAX else []
    wait = "wait: an unhealthy Node is rebooted or replaced once nothing runs there that blocks it"
    drain = f"'nodepool drain {nodes[0].name}' ends what runs there; it is then cured or replaced"
    yield Cause(
        "Health",
        f"{counted(len(nodes))} {'is' if len(nodes) == 1 else 'are'} unhealthy",
        "; ".join([*named, *more]),
        since=min(moments, default=None),
        helps=(wait if facts.cures else drain,),
        proofs=_node_proofs(nodes),
    )


def _progress(facts: Facts) -> Iterator[Cause]:
    """What is under way where nothing blocks and the NodePool is not at its target."""
    missing = facts.target - facts.held
    if missing <= 0:
        return
    passed = [kind for kind in CHECKS if kind in facts.checks]
    if len(passed) < len(CHECKS):
        waits = next(kind for kind in CHECKS if kind not in facts.checks)
        title = f"{waits} is not determined yet"
    else:
        title = f"{counted(missing)} {'is' if missing == 1 else 'are'} about to be assigned"
    last = facts.checks[passed[-1]] if passed else None
    yield Cause(
        "Progress",
        title,
        since=last.since if last is not None else None,
        helps=("wait a moment and ask again",),
        proofs=proofs([(facts.position, f"nodepool {facts.name}")]),
    )


def proofs(pairs: Iterable[tuple[int, str]]) -> tuple[Proof, ...]:
    """The proofs with a position that is known, each position once."""
    known: dict[int, str] = {}
    for position, about in pairs:
        if position > 0:
            known.setdefault(position, about)
    return tuple(Proof(position, about) for position, about in known.items())


def _node_proofs(nodes: Iterable[NodeFacts]) -> tuple[Proof, ...]:
    return proofs([(node.position, f"node {node.name}") for node in nodes][:NAMED_MAX])


def _oldest(nodes: list[NodeFacts]) -> list[NodeFacts]:
    """The Nodes by when they began to leave, or to boot; those of which it is not known last."""
    moments = [(node.removal_since or node.created, node) for node in nodes]
    known = [(moment, node) for moment, node in moments if moment is not None]
    first = [node for _, node in sorted(known, key=lambda pair: (pair[0], pair[1].name))]
    return [*first, *(node for moment, node in moments if moment is None)]


def _names(nodes: list[NodeFacts]) -> str:
    names = [node.name for node in nodes[:NAMED_MAX]]
    more = [f"{len(nodes) - NAMED_MAX} more"] if len(nodes) > NAMED_MAX else []
    return ", ".join([*names, *more])


def _title(check: Check) -> str:
    return f"{check.type} is {check.reason or 'not determined'}"


def _message(check: Check) -> str:
    return check.message.removesuffix(".")
