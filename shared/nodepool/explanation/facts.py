"""The facts of the read model that say why a NodePool does not have what it wants."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a NodePool on its newest generation.

    type, status, reason, message: as the condition has them.
    since: when its status changed last; None where that is not known.
    position: where in the log it changed last; 0 where that is not known.
    """

    type: str
    status: str
    reason: str
    message: str = ""
    since: datetime | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A Node of the NodePool.

    position: where in the log it changed last.
    created: when it was assigned; None where that is not known, as with the other moments.
    registered: whether it has joined its cluster.
    phase: its phase, such as `production` or `cordoned`.
    active, active_since, work: whether anything runs on it, since when, and what.
    idle_since: since when nothing runs on it; None for an active Node.
    blocking: the first of the Pods that a drain waits for: name, and since when.
    blocking_count: how many Pods a drain waits for.
    removal, removal_since: why it is to leave, and since when; empty for a Node that stays.
    preempted_since: when its preemption began; None where it is not preempted.
    problems, problems_since: what makes it unhealthy, as its cordon names it, and since when.
    reserved: whether it is reserved for the control plane, so that the NodePool cannot use it.
    domain: its NVLink domain; empty where it has none.
    """

    name: str
    position: int = 0
    created: datetime | None = None
    registered: bool = True
    phase: str = "production"
    active: bool = False
    active_since: datetime | None = None
    idle_since: datetime | None = None
    work: str = ""
    blocking: tuple[tuple[str, datetime | None], ...] = ()
    blocking_count: int = 0
    removal: str = ""
    removal_since: datetime | None = None
    preempted_since: datetime | None = None
    problems: tuple[str, ...] = ()
    problems_since: datetime | None = None
    reserved: bool = False
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """The quota of the NodePool's organisation, type and zone.

    limit: the most Nodes; None where it was never set.
    used: how many Nodes count against it, those of this NodePool included.
    position: where in the log it changed last.
    """

    limit: int | None
    used: int
    position: int = 0


@dataclass(frozen=True, slots=True)
class Domain:
    """The machines of one NVLink domain.

    held: how many of them are Nodes of the NodePool.
    free: how many are free.
    triage: the names of its machines in triage.
    """

    held: int = 0
    free: int = 0
    triage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of the NodePool's type in its zone: how many are in which state.

    broken: some of those in triage: name, cause, and where in the log each changed last.
    position: where in the log the counts changed last.
    reclaimed, to_reclaim: how many an operator holds back, and how many the operator is to have.
    domains: of a type that comes in racks, its NVLink domains by name.
    """

    free: int
    assigned: int
    triage: int
    broken: tuple[tuple[str, str, int], ...] = ()
    position: int = 0
    reclaimed: int = 0
    to_reclaim: int = 0
    domains: Mapping[str, Domain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another NodePool of the organisation with the same type in the same zone.

    name: `<cluster>/<name>`.
    held: how many Nodes it has, those on their way to it included.
    reserved: how many Nodes it takes of the quota.
    spot: whether its Nodes are spot Nodes.
    target: how many Nodes it wants.
    yields: whether a lower target makes it give Nodes back: it is valid, stays, and no autoscaler
        sets its target.
    may_grow: how many more Nodes its autoscaler may want; these take the rest of the quota.
    waits_for_quota, waits_for_machines: whether it is short of them itself.
    position: where in the log it changed last.
    """

    name: str
    held: int
    reserved: int
    spot: bool = False
    target: int = 0
    yields: bool = False
    may_grow: int = 0
    waits_for_quota: bool = False
    waits_for_machines: bool = False
    position: int = 0

    @property
    def lacks(self) -> int:
        """Return how many Nodes of the quota it waits for."""
        return max(0, self.target - self.reserved) if self.waits_for_quota else 0


@dataclass(frozen=True, slots=True)
class Facts:
    """A NodePool, and what its condition AtTarget depends on.

    zone: empty where it is not known.
    target, current, in_progress: how many Nodes it wants, has, and awaits.
    away: how many Nodes are reserved for the control plane, which `current` does not count.
    granted: how many Nodes its quota allows it; None where that is not known.
    deleting, deleting_since: whether, and since when, it is being deleted.
    idle_only: whether active Nodes stay until they are idle.
    cures: whether its unhealthy Nodes are rebooted or replaced without being asked for.
    checks: its conditions on its newest generation, by type.
    nodes: its Nodes; at least those that are active or leave while it loses Nodes.
    limit, machines: None where they are not known.
    peers: the NodePools it shares quota and machines with.
    position: where in the log it changed last.
    max_nodes: the highest target that the autoscaler may set; 0 if it sets no target.
    autoscaled: why the autoscaler has set its target; empty where a command did.
    autoscaled_position: where in the log it did.
    spot_awaited: how many spot Nodes are being preempted for it.
    autoscaling: whether the autoscaler sets its target.
    has_affinity: whether a node affinity restricts its machines.
    queue_position: the position of its first Node that waits for a machine; 0 for none.
    machines_needed: how many machines have to become free until it has all; 0 if not known.
    missing: how many Nodes it lacked when Capacity was evaluated last; 0 if not known.
    generation: the newest version of its spec.
    specified: when that version was stored; None where that is not known.
    progressed: when its Nodes, its grant, or what Capacity says changed last; None for never.
    older: the reasons of its conditions on older versions, by type.
    now: the present; None where no moment is to be judged by it.
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
    limit: Limit | None = None
    machines: Machines | None = None
    peers: tuple[Peer, ...] = ()
    position: int = 0
    max_nodes: int = 0
    autoscaled: str = ""
    autoscaled_position: int = 0
    spot_awaited: int = 0
    autoscaling: bool = False
    has_affinity: bool = False
    queue_position: int = 0
    machines_needed: int = 0
    missing: int = 0
    generation: int = 0
    specified: datetime | None = None
    progressed: datetime | None = None
    older: Mapping[str, str] = field(default_factory=dict)
    now: datetime | None = None

    @property
    def held(self) -> int:
        """How many Nodes it has, those on their way to it included."""
        return self.current + self.in_progress

    @property
    def counted_nodes(self) -> tuple[NodeFacts, ...]:
        """Return the Nodes that `held` counts: no Node that is reserved for the control plane."""
        return tuple(node for node in self.nodes if not node.reserved)

    @property
    def allowed(self) -> int:
        """Return how many Nodes of its target its quota allows it."""
        return self.target if self.granted is None else min(self.granted, self.target)

    @property
    def reserved(self) -> int:
        """How many Nodes it takes of the quota."""
        return max(self.granted or 0, self.held)
