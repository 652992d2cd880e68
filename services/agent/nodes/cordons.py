"""A cordon that the control plane wants, and a cordon that a person sets or removes by hand."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from agent.actions import Action, Attempt, Place, RecordEvent, Send
from agent.nodes.objects import NodeObject, WantedNode
from agent.nodes.record import Managed
from agent.reading import command_id
from nodepool.contract.commands import CordonNode, UncordonNode


class Cordon(NamedTuple):
    """How the cordon of a Node object must change.

    unschedulable: the value that the object must get; None to leave it as it is.
    remembered, number: the value and cordon number to remember as set by the control plane.
    asked: the value to remember as set by hand and requested from the bus.
    actions: the actions to carry out first.
    """

    unschedulable: bool | None
    remembered: bool | None
    number: int
    asked: bool | None = None
    actions: Sequence[Action] = ()


class _View(NamedTuple):
    """A Node whose cordon the control plane has set before.

    last: the value that the control plane set last.
    """

    wanted: WantedNode
    found: NodeObject
    before: Managed
    last: bool
    attempt: Attempt | None
    place: Place
    now: datetime

    def attempt_of(self, *, cordons: bool) -> Attempt | None:
        """Return the last command if it is a cordon, or an uncordon, by hand."""
        attempt, kind = self.attempt, CordonNode if cordons else UncordonNode
        return attempt if attempt is not None and isinstance(attempt.command, kind) else None

    @property
    def id(self) -> str:
        """The id of the command that asks the bus for the cordon that the object has."""
        wanted, verb = self.wanted, _verb(cordons=self.found.unschedulable)
        return command_id(self.found.uid, wanted.assignment, verb, wanted.version)


def cordon_of(
    wanted: WantedNode,
    found: NodeObject,
    before: Managed | None,
    attempt: Attempt | None,
    place: Place,
    now: datetime,
) -> Cordon:
    """Return the cordon as the bus wants it; ask the bus first for a change by hand.

    A change is by hand if the object differs from what the control plane has set, and the bus does
    not. A refused command becomes an Event, and the object is set back. A request is remembered
    before it is sent: a person may take it back before the bus answers, and that counts.
    """
    as_wanted = Cordon(wanted.unschedulable, wanted.unschedulable, wanted.cordon)
    if before is None or before.unschedulable is None:
        return as_wanted
    last = before.unschedulable
    view = _View(wanted, found, before, last, attempt, place, now)
    if before.asked is (not last) and before.asked is not found.unschedulable:
        return _taken_back(view, asked=before.asked)
    is_again = last and wanted.unschedulable and wanted.cordon != before.cordon
    if is_again and not found.unschedulable:
        return as_wanted._replace(actions=[_cordoned_again(view)])
    if is_again or wanted.unschedulable is not last or found.unschedulable is last:
        return as_wanted
    return _by_hand(view)


def _by_hand(view: _View) -> Cordon:
    wanted, is_cordon = view.wanted, view.found.unschedulable
    asked = Cordon(None, view.last, view.before.cordon, is_cordon)
    if view.before.asked is None:
        return asked
    attempt = view.attempt_of(cordons=is_cordon)
    if attempt is not None and not _is_settled(attempt):
        return asked
    if attempt is None or attempt.id != view.id:
        return asked._replace(actions=[_send(view)])
    state = "cordoned" if wanted.unschedulable else "schedulable"
    told = _report_refusal(view, attempt, f"; it is {state} again")
    return Cordon(wanted.unschedulable, wanted.unschedulable, wanted.cordon, actions=[told])


def _taken_back(view: _View, *, asked: bool) -> Cordon:
    """Return the cordon after a person set the opposite of a request before the bus answered.

    If the bus shows the request, the opposite is a change by hand. Otherwise the bus is asked for
    the opposite as well, since the bus may still have the request before it.
    """
    wanted, found = view.wanted, view.found
    if wanted.unschedulable is asked:
        return Cordon(None, asked, wanted.cordon, found.unschedulable)
    waits = Cordon(None, view.last, view.before.cordon, asked)
    first = view.attempt_of(cordons=asked)
    second = view.attempt_of(cordons=found.unschedulable)
    if any(each is not None and not _is_settled(each) for each in (first, second)):
        return waits
    is_refused = first is not None and first.outcome == "refused"
    if not is_refused and (second is None or second.id != view.id):
        return waits._replace(actions=[_send(view)])
    is_told = second is not None and second.outcome == "refused"
    told = [_report_refusal(view, second)] if second is not None and is_told else []
    return Cordon(None, view.last, view.before.cordon, actions=told)


def _is_settled(attempt: Attempt) -> bool:
    return attempt.outcome == "refused" or (attempt.outcome == "accepted" and attempt.is_shown)


def _verb(*, cordons: bool) -> str:
    return "cordon" if cordons else "uncordon"


def _send(view: _View) -> Send:
    wanted, place, cordons = view.wanted, view.place, view.found.unschedulable
    kind = CordonNode if cordons else UncordonNode
    command = kind(org=place.org, cluster=place.cluster, pool=wanted.pool, node=wanted.name)
    return Send(view.id, command)


def _report_refusal(view: _View, attempt: Attempt, what_is: str = "") -> RecordEvent:
    phase = view.wanted.phase.value
    why = attempt.message or f"the control plane keeps it {phase}"
    return _build_event(view, f"{why}{what_is}", attempt.id)


def _cordoned_again(view: _View) -> RecordEvent:
    wanted = view.wanted
    key = command_id(view.found.uid, wanted.assignment, "again", wanted.cordon)
    return _build_event(view, "the control plane has cordoned it again meanwhile", key)


def _build_event(view: _View, why: str, key: str) -> RecordEvent:
    found, verb = view.found, _verb(cordons=view.found.unschedulable)
    return RecordEvent(
        kind="Node",
        name=found.name,
        uid=found.uid,
        severity="Warning",
        reason=f"{verb.capitalize()}Refused",
        message=f"{verb} of Node {found.name} by hand: {why}",
        key=key,
        time=view.now,
    )
