"""Nodes as a second specification: which are removed, which are spared, and what is counted.

* A scale-down asks for a Node only while more stay than are wanted; a Node that is leaving for
  whatever reason, a preemption included, does not stay. Those that cost least go first: Nodes that
  have not joined, then idle ones, then, with PreferIdle only, active ones; the newest first.
* While fewer stay than are wanted, a Node that leaves for a scale-down alone is spared, at once.
* A removal is announced, counts the Nodes that left in it, and ends.
* A Node is assigned because it was requested, or because another one was lost.
* A NodePool that is being deleted gives back its grant at once, and asks for nothing.

From the log: what the allocator had read when it decided.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    CWNodePoolScaledUp,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeRequestQueued,
    GrantAcknowledged,
    NodeActivityChanged,
    NodeKept,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    PreemptionPending,
    QuotaChecked,
)
from nodepool.contract.messages import OfPool
from nodepool.contract.model import NodePoolSpec, RemovalReason, ScaleDownStrategy
from support.reference.history import History, Said

OUTPUTS_MAX = 900
"""A step with so many outputs was cut short, and goes on at the next wake."""


@dataclass
class Member:
    """A Node of a NodePool; `chosen` says why it was chosen to leave, None while it was not."""

    node: str
    assignment: int
    registered: bool = False
    active: bool = False
    chosen: RemovalReason | None = None
    request: int = 0
    preempted: bool = False

    @property
    def stays(self) -> bool:
        """Whether it is not leaving."""
        return self.chosen is None and not self.preempted

    @property
    def cost(self) -> tuple[int, int, str]:
        """Its place among those that may leave, cheapest first."""
        return 0 if not self.registered else 1 + self.active, -self.assignment, self.node


@dataclass
class Removal:
    """A removal under way; `before` counts the departures of Nodes preempted before it began."""

    preempted: set[int]
    left: int = 0
    before: int = 0


@dataclass
class Group:
    """The Nodes of a NodePool.

    level: the target that it was last scaled to; None before the first time.
    requested, assigned, lost: how many Nodes were requested, were assigned, and left unasked for.
    grown: whether the step under way has assigned it a Node.
    """

    version: NodePoolValidated
    deleting: bool = False
    granted: int = 0
    members: dict[int, Member] = field(default_factory=dict)
    removal: Removal | None = None
    level: int | None = None
    requested: int = 0
    assigned: int = 0
    lost: int = 0
    within_quota: bool = False
    grown: bool = False

    @property
    def key(self) -> str:
        """The key of the NodePool."""
        return self.version.key

    @property
    def spec(self) -> NodePoolSpec:
        """Its spec."""
        return self.version.spec

    @property
    def valid(self) -> bool:
        """Whether its spec is valid."""
        return self.version.reason is Validated.VALID

    @property
    def staying(self) -> list[Member]:
        """The Nodes that are not leaving."""
        return [member for member in self.members.values() if member.stays]

    @property
    def spareable(self) -> list[Member]:
        """The Nodes that leave for a scale-down alone."""
        return [
            member
            for member in self.members.values()
            if member.chosen is RemovalReason.SCALE_DOWN
            and member.registered
            and not member.preempted
        ]

    @property
    def owes(self) -> bool:
        """Whether Nodes are leaving that it needs."""
        lacks = len(self.staying) < self.spec.target_nodes
        return self.valid and not self.deleting and lacks and bool(self.spareable)


class NodesModel:
    """The Nodes of all NodePools after a log; `faults` is what the allocator did wrong."""

    def __init__(self, history: History) -> None:
        self.groups: dict[str, Group] = {}
        self.faults: list[str] = []
        self._step: Said | None = None
        self._outputs = 0
        for said in history.seen_by("allocator"):
            if said.speaker == "allocator":
                self._outputs += 1
                self._said(said)
            else:
                self._ended()
                self._step, self._outputs = said, 0
                self._heard(said)
        self._ended()

    def _ended(self) -> None:
        """At the end of a step, no Node is leaving that its NodePool needs."""
        step, message = self._step, self._step.message if self._step else None
        if step is None or self._outputs >= OUTPUTS_MAX:
            return
        about = message.key if isinstance(message, OfPool) else ""
        for group in self.groups.values():
            kind = INSTANCE_TYPES.get(group.spec.instance_type)
            size = kind.rack_size if kind is not None else 0
            if group.grown and size and len(group.members) % size:
                self._fault(group, f"is given {len(group.members)} Nodes, which are no whole racks")
            group.grown = False
            if group.key == about and group.owes:
                self._fault(group, f"needs {len(group.spareable)} leaving Nodes at {step.position}")

    def _fault(self, group: Group, text: str) -> None:
        self.faults.append(f"{group.key} {text}")

    def _member(self, message: object) -> tuple[Group, Member] | None:
        assignment = getattr(message, "assignment", 0)
        for group in self.groups.values():
            if assignment in group.members:
                return group, group.members[assignment]
        return None

    def _heard(self, said: Said) -> None:
        message = said.message
        match message:
            case NodePoolValidated(uid=uid):
                if uid in self.groups:
                    self.groups[uid].version = message
                else:
                    self.groups[uid] = Group(message)
            case NodePoolDeleting(uid=uid) if uid in self.groups:
                self.groups[uid].deleting, self.groups[uid].removal = True, None
            case CWNodePoolDeleted(uid=uid):
                self.groups.pop(uid, None)
            case QuotaChecked(uid=uid) if uid in self.groups:
                group = self.groups[uid]
                if message.generation == group.version.generation:
                    group.granted, group.within_quota = message.granted, message.reason == "Under"
                    if group.level is None and not group.spec.target_nodes:
                        group.level = 0
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                self._left(message.assignment)
            case _:
                self._member_changed(said)

    def _member_changed(self, said: Said) -> None:
        message, found = said.message, self._member(said.message)
        if found is None:
            return
        _, member = found
        match message:
            case CWNodeRegistered():
                member.registered = True
            case NodeActivityChanged(active=active):
                member.active = active
            case NodeKept(request=request) if request == member.request:
                member.chosen = None
            case PreemptionPending() | NodePreempted():
                member.preempted = True
            case _:
                pass

    def _left(self, assignment: int) -> None:
        for group in self.groups.values():
            member = group.members.pop(assignment, None)
            if member is None:
                continue
            group.lost += member.chosen is None or member.preempted
            if group.removal is not None and not member.stays:
                early = member.chosen is None and assignment in group.removal.preempted
                group.removal.left += not early
                group.removal.before += early

    def _said(self, said: Said) -> None:
        message = said.message
        match message:
            case CWNodeAssigned(uid=uid) if uid in self.groups:
                self._assigned(self.groups[uid], message)
            case CWNodeDeletionRequestSuccess():
                self._requested(message)
            case NodeRemovalCancelled():
                found = self._member(message)
                if found is not None:
                    found[1].chosen = None
            case OfPool():
                for group in self.groups.values():
                    if group.key == message.key:
                        self._announced(group, message)
            case _:
                pass

    def _assigned(self, group: Group, message: CWNodeAssigned) -> None:
        group.members[message.assignment] = Member(message.node, message.assignment)
        group.assigned += 1
        group.grown = True
        if group.assigned > group.requested + group.lost:
            requested = f"{group.requested} were requested and {group.lost} lost"
            self._fault(group, f"is assigned Node {group.assigned}, but {requested}")

    def _requested(self, message: CWNodeDeletionRequestSuccess) -> None:
        found = self._member(message)
        if found is None:
            return
        group, member = found
        if message.removal is RemovalReason.SCALE_DOWN:
            staying, target = group.staying, group.spec.target_nodes
            if len(staying) <= target or not group.valid:
                self._fault(group, f"removes {member.node} and keeps {len(staying)} of {target}")
            idle_only = group.spec.lifecycle.scale_down_strategy is ScaleDownStrategy.IDLE_ONLY
            if member.registered and member.active and idle_only:
                self._fault(group, f"removes {member.node}, which is active")
            if any(other.cost < member.cost for other in staying):
                self._fault(group, f"removes {member.node}, and others cost less")
        member.chosen, member.request = message.removal, message.request

    def _announced(self, group: Group, message: OfPool) -> None:
        match message:
            case CWNodePoolRemoveNodes(count=count):
                self._begun(group, count)
            case CWNodePoolNodesRemoved():
                self._removed(group, message)
            case CWNodeRequestQueued(count=count):
                group.requested += count
                missing = min(group.granted, group.spec.target_nodes) - len(group.members)
                if count != missing or group.deleting:
                    self._fault(group, f"requests {count} Nodes and lacks {missing}")
                group.level = message.granted if group.level is None else group.level
            case CWNodePoolScaledUp(before=before, after=after):
                if before != group.level or after <= before or after != group.spec.target_nodes:
                    self._fault(group, f"is scaled up {before} to {after}, last to {group.level}")
                group.level = after
            case CWNodePoolScaledDown(before=before, after=after):
                if before != group.level or after >= before or after != group.spec.target_nodes:
                    self._fault(group, f"is scaled down {before} to {after}, last {group.level}")
                group.level, group.removal = after, None
            case GrantAcknowledged(granted=granted):
                if group.deleting and not granted:
                    group.granted = 0
            case _:
                pass

    def _begun(self, group: Group, count: int) -> None:
        surplus = len(group.staying) - group.spec.target_nodes
        expected = {len(group.members), len(group.staying)} if group.deleting else {surplus}
        if count not in expected or (group.removal is not None and group.removal.left):
            self._fault(group, f"begins to remove {count} Nodes, not one of {expected}")
        early = {each.assignment for each in group.members.values() if each.preempted}
        group.removal = Removal(early)

    def _removed(self, group: Group, message: CWNodePoolNodesRemoved) -> None:
        removal = group.removal or Removal(set())
        most = removal.left + removal.before
        if not removal.left <= message.count <= most or message.remaining != len(group.members):
            left = f"{removal.left} to {most} left and {len(group.members)} remain"
            self._fault(
                group, f"reports {message.count} removed, {message.remaining} remain; {left}"
            )
        group.removal = None


def faults(model: NodesModel) -> Iterator[str]:
    """What was wrong on the way, and removals and scalings that have not ended."""
    yield from model.faults
    for group in model.groups.values():
        leaving, target = len(group.members) - len(group.staying), group.spec.target_nodes
        if not group.valid or group.deleting or leaving or len(group.staying) > target:
            continue
        if group.removal is not None and group.removal.left:
            yield f"{group.key} has removed {group.removal.left} Nodes, and does not say so"
        level = group.level
        if level is not None and (level > target or (group.within_quota and level != target)):
            yield f"{group.key} was scaled to {level} last, and its target is {target}"
