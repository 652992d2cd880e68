"""The Nodes of a NodePool as the reference model counts them, and the removals of some of them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodepool.contract.conditions import Validated
from nodepool.contract.events import NodePoolValidated
from nodepool.contract.model import NodePoolSpec, RemovalReason, ScaleDownStrategy
from support.reference import racks


@dataclass
class Member:
    """A Node of a NodePool.

    chosen: why it was chosen to leave; None while it was not.
    cordoned: whether it is cordoned and stays.
    counted: whether it counts in the removal under way if it leaves.
    batch: the input that led to its assignment.
    idle_only: whether it is kept if it turns out to be active.
    unanswered: whether its removal was cancelled, and it is not known whether it stays.
    is_unhealthy: whether it leaves because it is unhealthy.
    awaited: whether it was asked to give way, and its preemption has not begun yet.
    labels: the topology labels of its machine.
    """

    node: str
    assignment: int
    registered: bool = False
    active: bool = False
    cordoned: bool = False
    chosen: RemovalReason | None = None
    request: int = 0
    preempted: bool = False
    counted: bool = False
    batch: int = 0
    idle_only: bool = False
    unanswered: bool = False
    is_unhealthy: bool = False
    awaited: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def stays(self) -> bool:
        """Whether it is not leaving."""
        return self.chosen is None and not self.preempted and not self.is_unhealthy

    @property
    def domain(self) -> str:
        """The NVLink domain of its machine; empty for one without."""
        return self.labels.get(racks.DOMAIN, "")

    @property
    def cost(self) -> tuple[int, int, str]:
        """Its place among those that may leave, cheapest first."""
        useful = 1 + 2 * self.active + (not self.cordoned)
        return useful if self.registered else 0, -self.batch, self.node

    @property
    def is_busy_victim(self) -> bool:
        """Whether it leaves for a scale-down that waits for its Pods."""
        is_victim = self.chosen is RemovalReason.SCALE_DOWN and not self.preempted
        return is_victim and self.registered and self.active and not self.idle_only


@dataclass
class Group:
    """The Nodes of a NodePool.

    members: the Nodes that it holds, by assignment.
    lent: those that are reserved for the control plane, which it does not hold.
    level: the last announced target; the target at creation before the first one.
    shrinks_from: how many Nodes its last removal began with, at least `level`; 0 once it is scaled
        down.
    removed: how many Nodes left in the removal under way; None while there is none.
    most: how many it may keep at most, as the control plane gave back Nodes beyond its grant; None
        if its target alone says how many.
    places: how many Nodes it may be assigned: those it requested and those that a scale-up kept,
        without those it removed itself.
    grown: the NVLink domains of the Nodes that the step under way has assigned it.
    shrunk: of a type that comes in racks, how many Nodes of each NVLink domain stayed before the
        step under way chose the first to leave; None where it has chosen none.
    failing: whether the allocator failed on it and is still to try again.
    unfinished: whether the last step with something to say of it was stopped at its bound.
    """

    version: NodePoolValidated
    deleting: bool = False
    granted: int = 0
    members: dict[int, Member] = field(default_factory=dict)
    lent: dict[int, Member] = field(default_factory=dict)
    removed: int | None = None
    level: int = 0
    shrinks_from: int = 0
    most: int | None = None
    places: int = 0
    within_quota: bool = False
    grown: set[str] = field(default_factory=set)
    shrunk: Counter[str] | None = None
    failing: bool = False
    unfinished: bool = False

    @property
    def key(self) -> str:
        """The key of the NodePool."""
        return self.version.key

    @property
    def spec(self) -> NodePoolSpec:
        """Its spec."""
        return self.version.spec

    @property
    def wanted(self) -> int:
        """How many Nodes it wants to keep."""
        target = self.spec.target
        return target if self.most is None else min(target, self.most)

    @property
    def racks_wanted(self) -> int:
        """How many racks it wants to keep, each of them whole."""
        return -(-self.wanted // self.rack_size)

    @property
    def valid(self) -> bool:
        """Whether its spec is valid."""
        return self.version.reason is Validated.VALID

    @property
    def staying(self) -> list[Member]:
        """The Nodes that are not leaving."""
        return [member for member in self.members.values() if member.stays]

    @property
    def is_down(self) -> bool:
        """Whether it has no more Nodes than it wants, so that a scale-down under way is over.

        What an invalid spec wants is not known.
        """
        wants = self.valid and not self.deleting
        if self.rack_size:
            held = racks.by_domain(each.labels for each in self.members.values())
            return wants and racks.racks(self.rack_size, held) <= self.racks_wanted
        return wants and len(self.members) <= self.wanted

    @property
    def rack_size(self) -> int:
        """How many of its Nodes are a rack; 0 where they come one by one."""
        return racks.size_of(self.spec.instance_type)

    @property
    def staying_in(self) -> Counter[str]:
        """How many of the Nodes that are not leaving are of which NVLink domain."""
        return racks.by_domain(member.labels for member in self.staying)

    @property
    def grown_members(self) -> list[Member]:
        """Its Nodes of the domains of which it was assigned some."""
        return [member for member in self.members.values() if member.domain in self.grown]

    @property
    def has_surplus(self) -> bool:
        """Whether more Nodes stay than it wants, or Nodes of more racks."""
        if self.rack_size:
            return self.surplus > 0
        return len(self.staying) > self.wanted

    @property
    def surplus(self) -> int:
        """How many Nodes that stay are too many."""
        if self.rack_size:
            return racks.surplus(self.rack_size, self.wanted, self.staying_in)
        return len(self.staying) - self.wanted

    @property
    def is_silent(self) -> bool:
        """Return whether a scale-down is over without an event that says so.

        Where a cancelled removal became a preemption, that is said when the preemption begins.
        """
        is_over = self.is_down and not (self.unanswered or self.is_giving_way)
        return self.removed is not None and not self.failing and is_over

    @property
    def has_asked_victim(self) -> bool:
        """Return whether a victim of a scale-down was asked to give way and waits for that."""
        members = (*self.members.values(), *self.lent.values())
        scale_down = RemovalReason.SCALE_DOWN
        return any(member.awaited and member.chosen is scale_down for member in members)

    @property
    def unanswered(self) -> bool:
        """Whether a Node may still leave although its removal was cancelled."""
        members = (*self.members.values(), *self.lent.values())
        return any(member.unanswered for member in members)

    @property
    def is_giving_way(self) -> bool:
        """Whether the preemption of a Node was requested and has not begun.

        That is a decision about the machines of an offering, not about this NodePool.
        """
        return any(member.awaited for member in self.members.values())

    @property
    def waits_for_pods(self) -> bool:
        """Whether a scale-down waits for Pods though it may not, or though an idle Node stays."""
        if self.failing or self.deleting or not self.valid or self.rack_size:
            return False
        if not any(member.is_busy_victim for member in self.members.values()):
            return False
        strategy = self.spec.lifecycle.scale_down_strategy
        idle = any(member.stays and not member.active for member in self.members.values())
        return strategy is ScaleDownStrategy.IDLE_ONLY or idle

    @property
    def victims(self) -> list[Member]:
        """The Nodes that leave for a scale-down alone."""
        scale_down = RemovalReason.SCALE_DOWN
        members = self.members.values()
        return [each for each in members if each.chosen is scale_down and not each.preempted]

    @property
    def lent_victims(self) -> list[Member]:
        """Return the Nodes of the control plane that leave for a scale-down."""
        scale_down = RemovalReason.SCALE_DOWN
        lent = self.lent.values()
        return [each for each in lent if each.chosen is scale_down and not each.preempted]

    @property
    def spareable(self) -> list[Member]:
        """Those of them that have registered."""
        return [member for member in self.victims if member.registered]

    @property
    def owes(self) -> bool:
        """Whether Nodes are leaving that it needs.

        A Node that gives way to another NodePool is replaced when its preemption begins.
        """
        lacks = self._lacks_racks if self.rack_size else len(self.staying) < self.wanted
        may_grow = self.valid and not self.deleting and not self.failing
        return may_grow and lacks and not self.is_giving_way and bool(self.spareable)

    @property
    def _lacks_racks(self) -> bool:
        """Whether fewer racks stay than it wants, or a part of one while others of it leave."""
        staying, size = self.staying_in, self.rack_size
        leaving = racks.by_domain(member.labels for member in self.spareable)
        is_split = any(staying[domain] % size for domain in leaving)
        return is_split or racks.racks(size, staying) < self.racks_wanted
