"""The facts of the read model that explain why a NodePool is not at its target."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from nodepool.contract.conditions import Quota
from nodepool.explanation.node_facts import NodeFacts

StepName = Literal[
    "count machines",
    "assign",
    "ask spot Nodes",
    "warn",
    "mark",
    "preempt",
    "cordon",
    "choose",
    "remove",
    "register",
    "end",
    "forget",
    "release",
]
"""The steps for which a NodePool or a Node waits."""


class Step(NamedTuple):
    """A step, and the moment when it is due: the step should have happened by then."""

    name: StepName
    due: datetime


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a NodePool for its newest generation.

    type, status, reason, message: the same as in the condition.
    since: when its status changed last; None if unknown.
    position: the log position of its last change; 0 if unknown.
    """

    type: str
    status: str
    reason: str
    message: str = ""
    since: datetime | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """The quota of the NodePool's organisation, type and zone.

    limit: the most Nodes; None if it was never set.
    used: how many Nodes count against it, including the Nodes of this NodePool.
    position: the log position of its last change.
    given_up: when a NodePool last gave up a part of it; None if unknown.
    """

    limit: int | None
    used: int
    position: int = 0
    given_up: datetime | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """The machines of one NVLink domain.

    held, free, others, zap: how many are Nodes of the NodePool, free, other Nodes, and being wiped.
    triage: the names of its machines in triage.
    held_out: how many of its machines are held back and out of service.
    """

    held: int = 0
    free: int = 0
    triage: tuple[str, ...] = ()
    others: int = 0
    zap: int = 0
    held_out: int = 0


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of the NodePool's type in its zone: how many are in each state.

    broken, position: some machines in triage: name, cause, position; where the counts changed last.
    reclaimed, to_reclaim: how many an operator holds back, and how many the operator wants in all.
    domains: the NVLink domains by name, if the type comes in racks.
    giving_way, zap: how many are Nodes that are to give way, of all organisations, and are wiped.
    preempting_since: when the latest of them was asked, or its preemption began; None if unknown.
    unwarned, unmarked: how many of them were not warned yet; were warned and are not marked yet.
    unsure: how many of them do not answer, so that their machines may be lost.
    held_out: how many of the reclaimed machines are out of service; those are returned last.
    """

    free: int
    assigned: int
    triage: int
    broken: tuple[tuple[str, str, int], ...] = ()
    position: int = 0
    reclaimed: int = 0
    to_reclaim: int = 0
    domains: Mapping[str, Domain] = field(default_factory=dict)
    giving_way: int = 0
    preempting_since: datetime | None = None
    zap: int = 0
    held_out: int = 0
    unwarned: int = 0
    unmarked: int = 0
    unsure: int = 0


@dataclass(frozen=True, slots=True)
class Peer:
    """Another NodePool of the organisation with the same type in the same zone.

    name: `<cluster>/<name>`.
    held, reserved: how many Nodes it has, with those that have not joined yet, and takes of quota.
    spot, target: whether its Nodes are spot Nodes, and how many Nodes it wants.
    leaving: how many of its Nodes are to leave.
    can_give_way: how many of its Nodes are healthy spot Nodes that stay.
    yields: whether a lower target makes it give Nodes back: it is valid, stays, is not autoscaled.
    keeps: how many Nodes a lower target leaves it with while work or a silence delays the others.
    has_silent: whether one of its Nodes does not answer.
    may_lose: whether a Node is replaced unless its machine answers.
    returning, deleting: how many Nodes it gives back already, and whether it is being deleted.
    may_grow: how many more Nodes its autoscaler may want; they may take the rest of the quota.
    waits_for_quota, waits_for_machines: whether it lacks quota or machines itself.
    queue_position, missing, position: the same as those of `Facts`.
    unchecked_since: since when its target is to be checked against the quota; None if it is not.
    steps: the next steps until its surplus Nodes, or all its Nodes, are gone.
    """

    name: str
    held: int
    reserved: int
    spot: bool = False
    target: int = 0
    leaving: int = 0
    can_give_way: int = 0
    yields: bool = False
    keeps: int = 0
    has_silent: bool = False
    may_lose: bool = False
    returning: int = 0
    deleting: bool = False
    may_grow: int = 0
    waits_for_quota: bool = False
    waits_for_machines: bool = False
    queue_position: int = 0
    missing: int = 0
    position: int = 0
    unchecked_since: datetime | None = None
    steps: tuple[Step, ...] = ()

    @property
    def lacks(self) -> int:
        """Return how many Nodes of the quota it waits for."""
        return max(0, self.target - self.reserved) if self.waits_for_quota else 0


@dataclass(frozen=True, slots=True)
class Facts:
    """A NodePool, and what its condition AtTarget depends on.

    zone: the zone; empty if unknown.
    target, current, in_progress: how many Nodes it wants, has, and awaits.
    away: how many Nodes are reserved for the control plane, which `current` does not count.
    granted: how many Nodes its quota allows; None if unknown.
    deleting, deleting_since: whether, and since when, it is being deleted.
    idle_only, cures: whether active Nodes stay until they are idle, and unhealthy ones are cured.
    checks: its conditions for its newest generation, by type.
    nodes: its Nodes; while it loses Nodes, at least the Nodes that are active or leave.
    staying, lost: how many Nodes of each NVLink domain stay, and how many machines it lost.
    limit, machines, peers: its quota and machines, None if unknown; the NodePools that share them.
    position: the log position of its last change.
    min_nodes, max_nodes: between which targets the autoscaler chooses; 0 if it sets no target.
    autoscaled, autoscaled_position: why, and where in the log, the autoscaler set its target.
    spot_awaited: how many spot Nodes are being preempted for it.
    autoscaling, spot: whether the autoscaler sets its target, and its Nodes are spot Nodes.
    has_affinity: whether a node affinity restricts its machines.
    queue_position: the position of its first Node that waits for a machine; 0 for none.
    machines_needed: how many machines must become free until it has all Nodes; 0 if unknown.
    missing: how many Nodes it lacked when Capacity was evaluated last; 0 if unknown.
    generation, specified: the newest version of its spec, and when it was stored.
    targeted: when its target changed last; None if unknown.
    checked: when a check decided on that version last, so that the next check was due.
    progressed: when its Nodes, its grant, or its Capacity condition changed last; None for never.
    older: the reasons of its conditions for older versions, by type.
    now: the current time; None if no moment is compared with it.
    """

    name: str
    instance_type: str
    target: int
    zone: str = ""
    current: int = 0
    in_progress: int = 0
    away: int = 0
    granted: int | None = None
    deleting: bool = False
    deleting_since: datetime | None = None
    idle_only: bool = True
    cures: bool = False
    checks: Mapping[str, Check] = field(default_factory=dict)
    nodes: tuple[NodeFacts, ...] = ()
    staying: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    limit: Limit | None = None
    machines: Machines | None = None
    peers: tuple[Peer, ...] = ()
    position: int = 0
    min_nodes: int = 0
    max_nodes: int = 0
    autoscaled: str = ""
    autoscaled_position: int = 0
    spot_awaited: int = 0
    autoscaling: bool = False
    spot: bool = False
    has_affinity: bool = False
    queue_position: int = 0
    machines_needed: int = 0
    missing: int = 0
    generation: int = 0
    specified: datetime | None = None
    targeted: datetime | None = None
    checked: datetime | None = None
    progressed: datetime | None = None
    older: Mapping[str, str] = field(default_factory=dict)
    now: datetime | None = None

    @property
    def held(self) -> int:
        """Return how many Nodes it has, including Nodes that have not joined yet."""
        return self.current + self.in_progress

    @property
    def counted_nodes(self) -> tuple[NodeFacts, ...]:
        """Return the Nodes that `held` counts: all that are not reserved for the control plane."""
        return tuple(node for node in self.nodes if not node.reserved)

    @property
    def allowed(self) -> int:
        """Return how many Nodes of its target its quota allows."""
        return self.target if self.granted is None else min(self.granted, self.target)

    @property
    def wanted(self) -> int:
        """Return how many Nodes it keeps: its target, or its grant if it has more than that.

        It has more only if the control plane gave Nodes back.
        """
        if self.granted is None or self.held <= self.granted:
            return self.target
        quota = self.checks.get("Quota")
        reason = quota.reason if quota is not None else self.older.get("Quota")
        return self.target if reason == Quota.UNDER else self.allowed

    @property
    def is_valid(self) -> bool:
        """Return whether its spec is valid as far as is known, so that lost Nodes are replaced."""
        validated = self.checks.get("Validated")
        return validated is None or validated.status == "True"

    @property
    def reserved(self) -> int:
        """Return how many Nodes of the quota it takes."""
        return max(self.granted or 0, self.held)

    @property
    def needs_peers(self) -> bool:
        """Return whether its explanation depends on the NodePools that share quota and machines."""
        return not self.deleting and (self._lacks("Quota") or self._lacks("Capacity"))

    @property
    def needs_machines(self) -> bool:
        """Return whether its explanation depends on the machines of its type in its zone.

        Free machines decide about unhealthy Nodes, machines in triage about Nodes of drained racks.
        """
        is_ill = any(node.problems or (node.cordon and node.domain) for node in self.nodes)
        return not self.deleting and (is_ill or self._lacks("Capacity"))

    def _lacks(self, kind: str) -> bool:
        check = self.checks.get(kind)
        return check is None or check.status != "True"
