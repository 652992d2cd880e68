"""The conditions of a Node: those reported from its cluster, and those set by the bus."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from agent.nodes.objects import NodeObject, WantedNode
from agent.reading import Document
from nodepool.contract.health import BY_TYPE, is_problem

READY: Final = "Ready"
OWN: Final = ("CWRegistered", "CWActive", "CWNodeRemoval", "PhaseState", "PendingPhaseState")
"""The conditions that only the control plane sets on a Node."""
PROBLEMS: Final = tuple(sorted(BY_TYPE.keys() - {READY}))
"""The conditions that others, such as a node problem detector, may also set on a Node."""

_COMPARED: Final = ("status", "reason", "message")
_KUBELET: Final = frozenset(
    {READY, "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}
)


class Compared(NamedTuple):
    """How the conditions of a Node object and those of the bus differ.

    reported: the conditions of the object to report to the bus.
    written: the conditions of the bus that the object lacks, for a strategic merge patch.
    agreed: the status of each problem that both sides have, or on which they last agreed.
    """

    reported: Sequence[Document]
    written: Sequence[Document]
    agreed: Mapping[str, str]


def status_of(condition: Document | None) -> str:
    """Return the status of a condition; empty without a condition."""
    if condition is None:
        return ""
    status = condition.get("status")
    return status if isinstance(status, str) and status in ("True", "False") else "Unknown"


def by_type(conditions: Sequence[Document]) -> Mapping[str, Document]:
    """Return conditions by their type."""
    return {type_: each for each in conditions if isinstance(type_ := each.get("type"), str)}


def is_ready(found: NodeObject) -> bool:
    """Return whether the kubelet of a Node says that it takes Pods."""
    return status_of(by_type(found.conditions).get(READY)) == "True"


def compare_conditions(
    wanted: WantedNode, found: NodeObject, before: Mapping[str, str]
) -> Compared:
    """Return what each side lacks; `before` is what both sides agreed on last.

    A problem is compared three ways: the side that has changed it since then decides. If that side
    is unknown, or both sides have changed it, the problem counts as present.
    """
    here, there = by_type(found.conditions), by_type(wanted.conditions)
    reported, written, agreed = [], [*_own(here, there)], {}
    for type_ in PROBLEMS:
        side = _side(type_, here.get(type_), there.get(type_), before.get(type_))
        if side == "here":
            reported.append(here[type_])
        elif side == "there":
            written.append(_add_heartbeat(there[type_]))
        last = status_of(here.get(type_)) if side == "both" else before.get(type_)
        if last:
            agreed[type_] = last
    ready = here.get(READY)
    is_asked = bool(wanted.request)
    if ready and (is_asked or status_of(ready) != (status_of(there.get(READY)) or "True")):
        reported.append(ready)
    return Compared(reported, written, agreed)


def _side(type_: str, here: Document | None, there: Document | None, last: str | None) -> str:
    """Return the right side about a problem: `here`, `there`, `both`; empty without the problem."""
    if here is None:
        return "there" if there is not None else ""
    found = status_of(here)
    if found == (status_of(there) or _healthy(type_)):
        return "both"
    if there is None:
        return "here"
    if last == found:
        return "there"
    if last == status_of(there):
        return "here"
    return "here" if is_problem(type_, found) else "there"


def _healthy(type_: str) -> str:
    return "False" if BY_TYPE[type_].status == "True" else "True"


def _own(here: Mapping[str, Document], there: Mapping[str, Document]) -> Iterator[Document]:
    """Yield the conditions that only the control plane sets, if the object has them otherwise."""
    for type_, condition in there.items():
        if (
            type_ not in PROBLEMS
            and type_ not in _KUBELET
            and not _same(here.get(type_), condition)
        ):
            yield _add_heartbeat(condition)
    for type_ in OWN:
        if type_ in here and type_ not in there:
            yield {"$patch": "delete", "type": type_}


def _add_heartbeat(condition: Document) -> Document:
    """Return a condition with a heartbeat: a Node without one shows that of the year 1."""
    since = condition.get("lastTransitionTime")
    return {"lastHeartbeatTime": since, **condition} if since else condition


def _same(found: Document | None, wanted: Document) -> bool:
    """Whether two conditions say the same; when one began is written in more ways than one."""
    if found is None:
        return False
    return all(found.get(name, "") == wanted.get(name, "") for name in _COMPARED)
