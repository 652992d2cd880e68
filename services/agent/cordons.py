"""A cordon that the control plane wants, and one that a person sets or takes back by hand."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from agent.actions import Action, RecordEvent, Send
from agent.bus import Attempt, WantedNode
from agent.cluster import NodeObject
from agent.marks import Managed
from agent.place import Place
from nodepool.contract.commands import CordonNode, UncordonNode


class Cordon(NamedTuple):
    """What is to become of the cordon of a Node object.

    unschedulable: what the object is to have; None to leave it as it is.
    remembered, number: what is remembered as set by the control plane.
    actions: what comes before that.
    """

    unschedulable: bool | None
    remembered: bool | None
    number: int
    actions: Sequence[Action] = ()


def cordon_of(
    wanted: WantedNode,
    found: NodeObject,
    before: Managed | None,
    attempt: Attempt | None,
    place: Place,
    now: datetime,
) -> Cordon:
    """As the bus says; what a person does by hand is asked of the bus first.

    It was by hand where the object differs from what the control plane has set, and the bus does
    not. A refused command becomes an Event, and the object set back.
    """
    as_wanted = Cordon(wanted.unschedulable, wanted.unschedulable, wanted.cordon)
    if before is None or before.unschedulable is None:
        return as_wanted
    last = before.unschedulable
    is_new = wanted.unschedulable is not last or (last and wanted.cordon != before.cordon)
    if is_new or found.unschedulable is last:
        return as_wanted
    verb = "cordon" if found.unschedulable else "uncordon"
    prefix = f"{found.uid}.{wanted.assignment}.{verb}."
    left_alone = Cordon(None, last, before.cordon)
    if attempt is not None and attempt.id.startswith(prefix) and not _is_settled(attempt):
        return left_alone
    id = f"{prefix}{wanted.version}"
    if attempt is None or attempt.id != id:
        return left_alone._replace(actions=[Send(id, _command(wanted, found, place))])
    return as_wanted._replace(actions=[_refused(wanted, found, attempt, verb, now)])


def _is_settled(attempt: Attempt) -> bool:
    return attempt.outcome == "refused" or (attempt.outcome == "accepted" and attempt.is_shown)


def _command(wanted: WantedNode, found: NodeObject, place: Place) -> CordonNode | UncordonNode:
    kind = CordonNode if found.unschedulable else UncordonNode
    return kind(org=place.org, cluster=place.cluster, pool=wanted.pool, node=wanted.name)


def _refused(
    wanted: WantedNode, found: NodeObject, attempt: Attempt, verb: str, now: datetime
) -> RecordEvent:
    why = attempt.message or f"the control plane keeps it {wanted.phase.value}"
    state = "cordoned" if wanted.unschedulable else "schedulable"
    return RecordEvent(
        kind="Node",
        name=found.name,
        uid=found.uid,
        severity="Warning",
        reason=f"{verb.capitalize()}Refused",
        message=f"{verb} of Node {found.name} by hand: {why}; it is {state} again",
        key=attempt.id,
        time=now,
    )
