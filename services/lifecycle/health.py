"""How healthy a Node is, what was asked for it, and what follows from both while it stays."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, assert_never

from lifecycle import ConditionObserved, HealthChange
from lifecycle.silence import READY, Silence, silence_after
from nodepool.contract import events as on
from nodepool.contract.health import BY_TYPE, Remedy, cordon_cause, is_problem
from nodepool.contract.keys import CONTROL_PLANE
from nodepool.contract.model import NodeAction
from nodepool.contract.node_failures import (
    ADMIN_REBOOT,
    RACK_UNAVAILABLE,
    RESERVATION_PENDING,
)

REBOOT_MAX = timedelta(minutes=30)
"""How long a reboot of a Node may take."""
VERIFY_MAX = timedelta(hours=2)
"""How long the verification after a boot may take."""
RELAPSE = timedelta(hours=1)
"""A problem that comes again so soon after a reboot is not cured by one."""
Manner = Literal["", "safe", "forced"]
"""Whether something is to be done, and whether it waits for what runs there."""


class Problem(NamedTuple):
    """A problem of a Node: the type of the condition that reports it, and since when it does."""

    type: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Asked:
    """What commands have asked for a Node: the fields of `NodeActionRequested`."""

    cordon: str = ""
    drain: Manner = ""
    reboot: Manner = ""
    reserved_desired: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of the health of a Node, and how far it was taken care of.

    problems: those it has now, in the order of their names.
    asked: what commands have asked for.
    reserved: what it is reserved for, where that is not its organisation.
    cordoned_for: the causes that the last `CWNodeCordoned` named; empty after the end of a cordon.
    cordoned_for_triage: whether it said that its machine goes to triage.
    action: what it waits for, or what is done to it, as it was published last.
    boot: how often it was rebooted in this stay.
    booted, boot_fault: what its machine reported of the last reboot.
    cures: the problems for which it was rebooted, each with the end of the last such reboot; None
        while that is under way.
    verifying: whether its machine is verified after its last boot.
    verified, verification_fault: whether it has passed, None while that is not known, or why not.
    rack: the NVLink domain of its rack, while it is cordoned for the others in there.
    silence: its silence; None while it is not silent.
    """

    problems: tuple[Problem, ...] = ()
    asked: Asked = Asked()
    reserved: str = ""
    cordoned_for: str = ""
    cordoned_for_triage: bool = False
    action: NodeAction | None = None
    boot: int = 0
    booted: bool = False
    boot_fault: str = ""
    cures: tuple[tuple[str, datetime | None], ...] = ()
    verifying: bool = False
    verified: bool | None = None
    verification_fault: str = ""
    rack: str = ""
    silence: Silence | None = None

    @property
    def findings(self) -> tuple[Problem, ...]:
        """The problems that make it unhealthy, which a silence does not from the beginning."""
        if self.silence is None or self.silence.is_lasting:
            return self.problems
        return tuple(problem for problem in self.problems if problem.type != READY)

    @property
    def needs_triage(self) -> bool:
        """Whether a technician has to see to its machine."""
        return Remedy.TRIAGE in remedies(self)

    @property
    def is_silent(self) -> bool:
        """Whether its kubelet does not report, so that nothing is known of what runs there."""
        return any(problem.type == READY for problem in self.problems)

    @property
    def is_usable(self) -> bool:
        """Whether its NodePool can use the Node, which is not reserved for the control plane."""
        return self.reserved != CONTROL_PLANE

    @property
    def is_pending(self) -> bool:
        """Whether it is to be reserved for something else than it is."""
        return bool(self.asked.reserved_desired) and self.asked.reserved_desired != self.reserved


HEALTHY = Health()
"""The health of a Node of which nothing is known and for which nothing was asked."""


class Plan(NamedTuple):
    """What is to become of a Node that stays, or that leaves because it is unhealthy.

    causes: why nothing new may be scheduled on it.
    removes: whether it is to be replaced.
    action: what is to be done to it.
    forced: whether its reboot waits for nothing that runs there.
    """

    causes: tuple[str, ...] = ()
    removes: bool = False
    action: NodeAction | None = None
    forced: bool = False

    @property
    def reboots(self) -> bool:
        """Whether it is to be rebooted."""
        return self.action in (NodeAction.REBOOT, NodeAction.POWERRESET)

    @property
    def is_nothing(self) -> bool:
        """Whether it is to be in production."""
        return not self.causes and self.action is None


def plan(health: Health, *, evicts: bool) -> Plan:
    """What is to become of a Node; without `evicts`, it is cured only if its drain is asked for."""
    if health is HEALTHY:
        return Plan()
    asked, cures = health.asked, remedies(health)
    causes = own_causes(health)
    causes += [f"{RACK_UNAVAILABLE} {health.rack}"] if health.rack else []
    is_agreed = evicts or bool(asked.drain)
    if asked.reboot == "forced":
        return Plan(tuple(causes), action=NodeAction.POWERRESET, forced=True)
    if Remedy.TRIAGE in cures and is_agreed:
        return Plan(tuple(causes), removes=True)
    if asked.reboot:
        return Plan(tuple(causes), action=NodeAction.REBOOT)
    if cures and Remedy.TRIAGE not in cures and is_agreed:
        by_power = Remedy.POWERRESET in cures
        action = NodeAction.POWERRESET if by_power else NodeAction.REBOOT
        return Plan(tuple(causes), action=action)
    if asked.drain:
        return Plan(tuple(causes), action=NodeAction.DRAIN)
    return Plan(tuple(causes))


def own_causes(health: Health) -> list[str]:
    """Why nothing new may be scheduled on a Node, apart from the others of its rack."""
    asked, causes = health.asked, [cordon_cause(problem.type) for problem in health.findings]
    causes += [asked.cordon] if asked.cordon and asked.cordon not in causes else []
    causes += [RESERVATION_PENDING] if health.is_pending else []
    return causes


def remedies(health: Health) -> frozenset[Remedy]:
    """What cures the problems of a Node; one that comes back after a reboot needs more."""
    return frozenset(_remedy(health, problem) for problem in health.findings)


def _remedy(health: Health, problem: Problem) -> Remedy:
    for type_, ended in health.cures:
        if type_ == problem.type and ended is not None and problem.since < ended + RELAPSE:
            return Remedy.TRIAGE
    return BY_TYPE[problem.type].remedy


def cordon_text(health: Health, plan: Plan) -> str:
    """The causes of a cordon as `node.coreweave.cloud/cordonReason` lists them."""
    if plan.causes:
        return ",".join(plan.causes)
    return health.cordoned_for or ADMIN_REBOOT


def is_cordon_new(health: Health, plan: Plan) -> bool:
    """Whether the last `CWNodeCordoned` names other causes, or says otherwise of triage."""
    last = health.cordoned_for, health.cordoned_for_triage
    return (cordon_text(health, plan), health.needs_triage) != last


def changed(
    health: Health,
    message: HealthChange,
    now: datetime,
) -> Health:
    """The health after a message about it."""
    match message:
        case on.NodeConditionChanged() | on.NodeConditionReported():
            return reported(health, message, now)
        case on.NodeActionRequested():
            return asked_for(health, message)
        case on.CWNodeCordoned():
            silence = health.silence and health.silence.cordoned(message)
            cause, triage = message.cause, message.triage
            return replace(health, cordoned_for=cause, cordoned_for_triage=triage, silence=silence)
        case on.NodeSilent() | on.NodeReportRequested():
            return replace(health, silence=health.silence and health.silence.followed(message))
        case on.CWNodeUncordoned():
            return uncordoned(health)
        case _:
            assert_never(message)


def reported(health: Health, event: ConditionObserved, now: datetime) -> Health:
    """The health after a condition changed; one that is no known problem changes nothing."""
    if event.type not in BY_TYPE:
        return health
    if event.type == READY:
        health = replace(health, silence=silence_after(health.silence, event, now))
    rest = [problem for problem in health.problems if problem.type != event.type]
    if is_problem(event.type, event.status):
        if len(rest) < len(health.problems):
            return health
        rest.append(Problem(event.type, now))
    return replace(health, problems=tuple(sorted(rest)))


def asked_for(health: Health, event: on.NodeActionRequested) -> Health:
    """The health after commands asked for this."""
    asked = Asked(event.cordon, event.drain, event.reboot, event.reserved_desired)
    return replace(health, asked=asked)


def booted(health: Health, event: on.MachineBooted, now: datetime) -> Health:
    """The health after the machine has booted."""
    if not event.boot and not event.verifying:
        return health
    cures = tuple((type_, ended or now) for type_, ended in health.cures)
    return replace(health, booted=True, verifying=event.verifying, cures=cures)


def verified(health: Health, event: on.NodeVerified) -> Health:
    """The health after a verification."""
    return replace(health, verified=event.passed, verification_fault=event.cause)


def updated(health: Health, event: on.NodeUpdated) -> Health:
    """The health after it was published what the Node looks like."""
    is_agreed = event.reserved == health.asked.reserved_desired
    asked = replace(health.asked, reserved_desired="") if is_agreed else health.asked
    if event.boot > health.boot:
        cures = {**dict(health.cures), **{problem.type: None for problem in health.problems}}
        return replace(
            health,
            asked=replace(asked, drain="", reboot=""),
            action=event.action,
            boot=event.boot,
            booted=False,
            boot_fault="",
            cures=tuple(sorted(cures.items())),
            verifying=False,
            verified=None,
            verification_fault="",
            reserved=event.reserved,
            silence=health.silence and health.silence.repeated(),
        )
    after = replace(health, asked=asked, action=event.action, reserved=event.reserved)
    return HEALTHY if after == HEALTHY else after


def rack_changed(health: Health, domain: str) -> Health:
    """The health of a Node in whose rack, of this domain, too many are unavailable; or are not."""
    after = replace(health, rack=domain)
    return HEALTHY if after == HEALTHY else after


def uncordoned(health: Health) -> Health:
    """The health of a Node that is not cordoned any more."""
    after = replace(health, cordoned_for="", cordoned_for_triage=False)
    return HEALTHY if after == HEALTHY else after
