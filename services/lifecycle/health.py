"""The health of a Node, the requests of commands for the Node, and what follows from both."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal, NamedTuple, assert_never

from lifecycle.deadlines import SETTLES_WITHIN
from nodepool.contract import events as on
from nodepool.contract.health import (
    BY_TYPE,
    READY,
    Remedy,
    cordon_cause,
    is_problem,
)
from nodepool.contract.keys import CONTROL_PLANE
from nodepool.contract.model import NodeAction
from nodepool.contract.node_failures import RACK_UNAVAILABLE, RESERVATION_PENDING
from nodepool.contract.observations import ConditionSeen
from nodepool.contract.reboots import RebootedFor
from nodepool.contract.timetable import RELAPSE

Cures = tuple[tuple[str, datetime | None], ...]
"""The types of problems for which a Node was rebooted, sorted, each with the end of the last such
reboot; None during that reboot."""
Manner = Literal["", "safe", "forced"]
"""Whether a drain or a reboot is requested, and whether it waits for the workloads on the Node."""


class Problem(NamedTuple):
    """A problem of a Node: the type of the condition that reports it, and its beginning."""

    type: str
    since: datetime


class Silence(NamedTuple):
    """The silence of a Node.

    A silence makes a Node unhealthy in two steps. First, a waiting time of some minutes ends. Then,
    the service that observes the Node confirms that the Node is still silent; a service that is
    down confirms nothing.

    since: when the waiting time begins.
    ask_at: when the waiting time ends; None before it is published, and after the question.
    request: the number of the question whether the Node is still silent; 0 before the question.
    is_lasting: whether the silence makes the Node unhealthy.
    is_excused: whether the silence is part of a widespread silence.
    is_published: whether the waiting time, or that it does not count, is published.
    """

    since: datetime
    ask_at: datetime | None = None
    request: int = 0
    is_lasting: bool = False
    is_excused: bool = False
    is_published: bool = False

    @property
    def is_new(self) -> bool:
        """Return whether neither the waiting time, nor that it does not count, is published yet."""
        return not (self.is_published or self.is_lasting)

    def follow(self, event: on.NodeSilent | on.NodeReportRequested) -> "Silence":
        """Return the silence after its time was published, or a question whether it goes on."""
        match event:
            case on.NodeSilent(unhealthy_at=moment, is_widespread=is_widespread):
                ask_at = None if is_widespread else moment
                is_current = is_widespread is self.is_excused
                return self._replace(ask_at=ask_at, is_published=True) if is_current else self
            case on.NodeReportRequested(request=request):
                return self._replace(ask_at=None, request=request)
            case _:
                assert_never(event)

    def confirm(self, request: int) -> "Silence":
        """Return the silence after a report that the Node is silent, with this number."""
        is_answer = request > 0 and request == self.request and not self.is_excused
        return self._replace(is_lasting=True) if is_answer else self

    def restart(self) -> "Silence":
        """Return the silence of a Node that begins to reboot: its time counts again after that."""
        return self._replace(ask_at=None, request=0, is_published=False)

    def excuse(self, now: datetime, *, is_excused: bool) -> "Silence":
        """Return the silence at the beginning or the end of a widespread silence."""
        return Silence(self.since if is_excused else now, is_excused=is_excused)


class Asked(NamedTuple):
    """What commands have requested for a Node: the fields of `NodeActionRequested`."""

    cordon: str = ""
    drain: Manner = ""
    reboot: Manner = ""
    reserved_desired: str = ""


class Health(NamedTuple):
    """What is known about the health of a Node, and what commands have requested for the Node.

    problems: the problems that the Node has now, sorted by type.
    cures: the problems that the Node had when a reboot began or ended.
    rack: the NVLink domain of its rack, while the Node is cordoned for other Nodes of the rack.
    silence: None while the Node is not silent.
    asked: what commands have requested.
    reserved: the user for whom the Node is reserved; empty for its organisation.
    """

    problems: tuple[Problem, ...] = ()
    cures: Cures = ()
    rack: str = ""
    silence: Silence | None = None
    asked: Asked = Asked()
    reserved: str = ""

    @property
    def rebooted_for(self) -> tuple[RebootedFor, ...]:
        """What the Node was rebooted for; nothing of a reboot under way."""
        ended = ((type_, ended) for type_, ended in self.cures if ended is not None)
        return tuple(RebootedFor(type=type_, ended=moment) for type_, moment in ended)

    @property
    def findings(self) -> tuple[Problem, ...]:
        """The problems that make the Node unhealthy; a silence is one only once it is lasting."""
        if self.silence is None or self.silence.is_lasting:
            return self.problems
        return tuple(problem for problem in self.problems if problem.type != READY)

    @property
    def settles_at(self) -> datetime | None:
        """Return when the remaining problems that a reboot cures count again; None if none remain.

        A node problem detector runs on the Node itself, so it withdraws a cured problem only some
        time after the boot.
        """
        ends = (ended for _, ended in self._lingering)
        return max((ended + SETTLES_WITHIN for ended in ends), default=None)

    def without_lingering(self) -> "Health":
        """Return the health as if the last reboot had ended each problem that a reboot cures."""
        types = {type_ for type_, _ in self._lingering}
        rest = tuple(problem for problem in self.problems if problem.type not in types)
        return self._replace(problems=rest) if types else self

    @property
    def _lingering(self) -> tuple[tuple[str, datetime], ...]:
        """The problems that a reboot cures but that persist, each with the end of the reboot."""
        began = {problem.type: problem.since for problem in self.findings}
        return tuple(
            (type_, ended)
            for type_, ended in self.cures
            if ended is not None
            and BY_TYPE[type_].remedy is not Remedy.TRIAGE
            and type_ in began
            and began[type_] < ended
        )

    @property
    def needs_triage(self) -> bool:
        """Return whether a technician has to look at the machine."""
        return Remedy.TRIAGE in find_remedies(self)

    @property
    def is_silent(self) -> bool:
        """Return whether the kubelet does not report, so that nobody knows what runs there."""
        return any(problem.type == READY for problem in self.problems)

    @property
    def is_usable(self) -> bool:
        """Return whether the NodePool can use the Node."""
        return self.reserved != CONTROL_PLANE

    @property
    def is_pending(self) -> bool:
        """Return whether the Node waits for a different reservation."""
        return self.asked.reserved_desired not in ("", self.reserved)

    @property
    def own_causes(self) -> tuple[str, ...]:
        """Why no new work may begin on the Node, apart from causes in other Nodes of its rack."""
        causes = [cordon_cause(problem.type) for problem in self.findings]
        causes += [self.asked.cordon] if self.asked.cordon not in ("", *causes) else []
        causes += [RESERVATION_PENDING] if self.is_pending else []
        return tuple(causes)

    @property
    def causes(self) -> tuple[str, ...]:
        """Why no new work may begin on the Node."""
        causes = self.own_causes
        return (*causes, f"{RACK_UNAVAILABLE} {self.rack}") if self.rack else causes

    def report(self, event: ConditionSeen, now: datetime) -> "Health":
        """Return the health after a condition changed; an unknown condition changes nothing."""
        if event.type not in BY_TYPE:
            return self
        begins, silence = is_problem(event.type, event.status), self.silence
        if event.type == READY and begins:
            silence = Silence(now) if silence is None else silence.confirm(event.request)
        elif event.type == READY:
            silence = None
        rest = [problem for problem in self.problems if problem.type != event.type]
        if begins and len(rest) < len(self.problems):
            return self._replace(silence=silence)
        rest += [Problem(event.type, now)] if begins else []
        return self._replace(problems=tuple(sorted(rest)), silence=silence)

    def begin_reboot(self) -> "Health":
        """Return the health of a Node that begins to reboot, which ends what was asked for."""
        return self._replace(
            cures=self._cures_with_problems(),
            silence=self.silence and self.silence.restart(),
            asked=self.asked._replace(drain="", reboot=""),
        )

    def end_reboot(self, now: datetime) -> "Health":
        """Return the health of a Node that has booted.

        A problem that began during the reboot may be of the boot before, so it may be cured too. A
        problem that is reported after the boot is of this boot.
        """
        cures = ((type_, ended or now) for type_, ended in self._cures_with_problems())
        return self._replace(cures=tuple(cures))

    def _cures_with_problems(self) -> Cures:
        """Return the cures with the problems that the Node has while it reboots."""
        problems = dict.fromkeys(problem.type for problem in self.problems)
        return tuple(sorted({**dict(self.cures), **problems}.items()))

    def reserve(self, reserved: str) -> "Health":
        """Return the health of a Node that is reserved for this user."""
        is_agreed = reserved == self.asked.reserved_desired
        asked = self.asked._replace(reserved_desired="") if is_agreed else self.asked
        return self._replace(reserved=reserved, asked=asked)


HEALTHY: Final = Health()
"""The health of a Node without a known problem and without a request."""


class Plan(NamedTuple):
    """What happens to a Node that stays, or that leaves because it is unhealthy.

    causes: why no new work may begin on the Node.
    removes: whether another Node takes its place.
    action: what is done to the Node.
    forced: whether the reboot begins without waiting for the workloads on the Node.
    """

    causes: tuple[str, ...] = ()
    removes: bool = False
    action: NodeAction | None = None
    forced: bool = False

    @property
    def reboots(self) -> bool:
        """Return whether the Node is rebooted."""
        return self.action in (NodeAction.REBOOT, NodeAction.POWERRESET)

    @property
    def is_nothing(self) -> bool:
        """Return whether the Node belongs in production."""
        return not self.causes and self.action is None


NOTHING: Final = Plan()
"""The plan for a healthy Node."""


def make_plan(health: Health, *, evicts: bool) -> Plan:
    """Return what happens to a Node.

    evicts: whether an unhealthy Node is cured without a command that asks for its drain.
    """
    if health == HEALTHY:
        return NOTHING
    asked, remedies, causes = health.asked, find_remedies(health), health.causes
    is_agreed = evicts or bool(asked.drain)
    if asked.reboot == "forced":
        return Plan(causes, action=NodeAction.POWERRESET, forced=True)
    if Remedy.TRIAGE in remedies and is_agreed:
        return Plan(causes, removes=True)
    if asked.reboot:
        return Plan(causes, action=NodeAction.REBOOT)
    if remedies and Remedy.TRIAGE not in remedies and is_agreed:
        by_power = Remedy.POWERRESET in remedies
        return Plan(causes, action=NodeAction.POWERRESET if by_power else NodeAction.REBOOT)
    return Plan(causes, action=NodeAction.DRAIN if asked.drain else None)


def find_remedies(health: Health) -> frozenset[Remedy]:
    """Return the cures of the problems; a problem that comes back after a reboot needs triage."""
    return frozenset(_find_remedy(health.cures, problem) for problem in health.findings)


def _find_remedy(cures: Iterable[tuple[str, datetime | None]], problem: Problem) -> Remedy:
    for type_, ended in cures:
        if type_ == problem.type and ended is not None and problem.since < ended + RELAPSE:
            return Remedy.TRIAGE
    return BY_TYPE[problem.type].remedy
