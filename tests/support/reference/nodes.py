"""Nodes as a second specification: which are removed, which are spared, and what is counted.

* A scale-down asks for a Node only while more stay than are wanted: the target, or the grant if
  the control plane gave back more Nodes than that. A Node that is leaving for
  whatever reason, a preemption or its health included, does not stay. Those that cost least go
  first: Nodes that have not joined, then idle ones, then active ones, of each the cordoned ones
  before the others; the newest batch first, then by name, and active ones with PreferIdle only.
* No victim is waited for while an idle Node stays, nor with IdleOnly.
* While fewer stay than are wanted, a Node that leaves for a scale-down alone is spared, at once;
  where one is missing that gives way, when the preemption of that one has begun.
* A removal is announced, counts the victims that left in it, and ends once it is certain which
  cancelled victims stay.
* A Node that is reserved for the control plane leaves for no scale-down.
* A Node is assigned because it was requested, or because another one was lost.
* A NodePool that is being deleted gives back its grant at once, and asks for nothing.

From the log: what the allocator had read when it decided.
"""

from collections.abc import Iterator

from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CWNodeAssigned,
    CWNodeCordoned,
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
    CWNodeUncordoned,
    GrantAcknowledged,
    NodeActivityChanged,
    NodeKept,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
    NodeRemovalCancelled,
    NodeReservationChanged,
    NodeUpdated,
    PreemptionPending,
    QuotaChecked,
    Wake,
)
from nodepool.contract.messages import OfPool
from nodepool.contract.model import RemovalReason, ScaleDownStrategy
from nodepool.engine import bounds
from support.reference import racks
from support.reference.groups import Group, Member
from support.reference.history import History, Stored


class NodesModel:
    """The Nodes of all NodePools after a log; `faults` is what the allocator did wrong."""

    def __init__(self, history: History) -> None:
        self.groups: dict[str, Group] = {}
        self.faults: list[str] = []
        self._step: Stored | None = None
        self._outputs = 0
        for stored in history.seen_by("allocator"):
            if stored.speaker == "allocator":
                self._outputs += 1
                self._decided(stored)
            else:
                self._ended()
                self._step, self._outputs = stored, 0
                self._heard(stored)
        self._ended()

    def _ended(self) -> None:
        """At the end of a step, no Node is leaving that its NodePool needs."""
        step, message = self._step, self._step.message if self._step else None
        about = message.key if isinstance(message, OfPool) else ""
        is_cut = self._outputs >= bounds.OUTPUTS_MAX
        is_own_wake = isinstance(message, Wake) and message.service == "allocator"
        for group in self.groups.values():
            if (group.key == about and self._outputs) or is_own_wake:
                group.unfinished = is_cut
        if step is None or is_cut:
            return
        for group in self.groups.values():
            self._in_racks(group)
            group.grown, group.shrunk = set(), None
            if group.key == about and group.is_silent and not group.unfinished:
                self._fault(group, f"ends a removal at {step.position}, and does not say so")
                group.removed = None
            if group.key == about and group.waits_for_pods and not group.unfinished:
                self._fault(group, f"waits for Pods at {step.position}, though it need not")
            is_tried = not (group.failing or group.unfinished)
            if group.key == about and group.lent_victims and is_tried:
                self._fault(group, f"removes Nodes of the control plane at {step.position}")
            if group.key == about and group.owes and not group.unfinished:
                self._fault(group, f"needs {len(group.spareable)} leaving Nodes at {step.position}")

    def _in_racks(self, group: Group) -> None:
        """What was given or is to leave in a step is whole racks, and no more than it has to be."""
        size = group.rack_size
        held = racks.by_domain(member.labels for member in group.grown_members)
        parts = {domain: count for domain, count in held.items() if size and count % size}
        if parts and len(group.members) < group.granted:
            self._fault(group, f"is given Nodes of {parts}, which are no whole racks")
        if not size or group.shrunk is None:
            return
        staying, before = group.staying_in, group.shrunk
        parts = {
            domain: staying[domain]
            for domain, count in before.items()
            if staying[domain] < count and staying[domain] % size
        }
        if parts:
            self._fault(group, f"gives up a part of a rack and keeps {parts}")
        removed, most = (
            before.total() - staying.total(),
            racks.surplus(size, group.wanted, before),
        )
        idle_only = group.spec.lifecycle.scale_down_strategy is ScaleDownStrategy.IDLE_ONLY
        if removed > most or (removed < most and not idle_only):
            self._fault(group, f"gives up {removed} Nodes in racks, and {most} are too many")

    def _fault(self, group: Group, text: str) -> None:
        self.faults.append(f"{group.key} {text}")

    def _member(self, message: object) -> tuple[Group, Member] | tuple[None, None]:
        assignment = getattr(message, "assignment", 0)
        for group in self.groups.values():
            member = group.members.get(assignment) or group.lent.get(assignment)
            if member is not None:
                return group, member
        return None, None

    def _heard(self, stored: Stored) -> None:
        message = stored.message
        match message:
            case NodePoolValidated(uid=uid):
                if uid in self.groups:
                    group = self.groups[uid]
                    group.version = message
                    group.most = None if message.reason is Validated.INVALID else group.most
                else:
                    self.groups[uid] = Group(message, level=message.spec.target)
            case NodePoolDeleting(uid=uid) if uid in self.groups:
                self.groups[uid].deleting, self.groups[uid].removed = True, None
            case CWNodePoolDeleted(uid=uid):
                self.groups.pop(uid, None)
            case QuotaChecked(uid=uid) if uid in self.groups:
                group = self.groups[uid]
                is_over = message.beyond and message.reason is not Quota.UNDER
                is_capped = is_over and group.version.reason is not Validated.INVALID
                group.most = message.granted if is_capped else None
                if message.generation == group.version.generation:
                    group.granted, group.within_quota = message.granted, message.reason == "Under"
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                self._left(message)
            case _:
                self._member_changed(stored)

    def _member_changed(self, stored: Stored) -> None:
        message = stored.message
        group, member = self._member(message)
        if group is None or member is None:
            return
        match message:
            case NodeReservationChanged(usable=usable):
                before, after = group.members, group.lent
                before, after = (after, before) if usable else (before, after)
                if before.pop(member.assignment, None) is not None:
                    after[member.assignment] = member
            case CWNodeRegistered():
                member.registered = True
            case NodeActivityChanged(active=active):
                member.active = active
            case CWNodeCordoned() | CWNodeUncordoned():
                member.cordoned = isinstance(message, CWNodeCordoned)
            case NodeKept(request=request) if request == member.request:
                member.chosen, member.unanswered = None, False
            case NodeUpdated(removal=removal):
                member.is_unhealthy = removal is RemovalReason.UNHEALTHY
            case PreemptionPending() | NodePreempted():
                member.preempted, member.awaited = True, False
                member.counted = member.counted and member.chosen is not None
                member.unanswered = False
            case _:
                pass

    def _left(self, message: CWNodeDeleted | CWNodeRegistrationFailed) -> None:
        """A Node that was to be kept, and was gone before that was known, was removed."""
        too_late = isinstance(message, CWNodeDeleted) and message.removal == "ScaleDown"
        for group in self.groups.values():
            member = group.members.pop(message.assignment, None)
            if member is not None and member.chosen is not None and not member.preempted:
                # A Node that its reservation gave back may have been one more than was requested.
                group.places = max(group.places - 1, min(group.places, len(group.members)))
            member = member or group.lent.pop(message.assignment, None)
            if member is None:
                continue
            is_chosen = member.chosen is not None or member.unanswered
            counts = member.counted and is_chosen
            if group.removed is not None and (counts or too_late or group.deleting):
                group.removed += 1

    def _decided(self, stored: Stored) -> None:
        message = stored.message
        match message:
            case CWNodeAssigned(uid=uid) if uid in self.groups:
                self._assigned(self.groups[uid], message, stored.cause)
            case CWNodeDeletionRequestSuccess():
                self._requested(message)
            case NodePreemptionRequested() | NodePreemptionWithdrawn():
                _, member = self._member(message)
                if member is not None and (member.awaited or not member.preempted):
                    member.preempted = isinstance(message, NodePreemptionRequested)
                    member.awaited = member.preempted
            case NodeRemovalCancelled():
                _, member = self._member(message)
                if member is not None:
                    member.chosen, member.unanswered = None, True
            case OfPool():
                for group in self.groups.values():
                    if group.key == message.key:
                        self._announced(group, message)
            case _:
                pass

    def _assigned(self, group: Group, message: CWNodeAssigned, cause: int) -> None:
        member = Member(message.node, message.assignment, labels=message.labels, batch=cause)
        group.members[message.assignment] = member
        group.grown.add(member.domain)
        count = len(group.members)
        if count > group.places:
            self._fault(group, f"is assigned Node {count}, but only {group.places} were requested")

    def _requested(self, message: CWNodeDeletionRequestSuccess) -> None:
        group, member = self._member(message)
        if group is None or member is None:
            return
        if message.removal is RemovalReason.SCALE_DOWN:
            staying, target = group.staying, group.wanted
            if group.rack_size and group.shrunk is None:
                group.shrunk = group.staying_in
            is_down = not group.rack_size and len(staying) <= target
            is_exchanged = len(staying) == target and group.waits_for_pods
            if (is_down and not is_exchanged) or not group.valid:
                self._fault(group, f"removes {member.node} and keeps {len(staying)} of {target}")
            idle_only = group.spec.lifecycle.scale_down_strategy is ScaleDownStrategy.IDLE_ONLY
            if member.registered and member.active and idle_only:
                self._fault(group, f"removes {member.node}, which is active")
            may_go = (each for each in staying if not (idle_only and each.active))
            if not group.rack_size and any(other.cost < member.cost for other in may_go):
                self._fault(group, f"removes {member.node}, and others cost less")
        member.chosen, member.request, member.counted = message.removal, message.request, True
        member.idle_only, member.unanswered = message.idle_only, False

    def _announced(self, group: Group, message: OfPool) -> None:
        match message:
            case CWNodePoolRemoveNodes(count=count, before=before):
                # A Node that its reservation gives back may be one more than were ever wanted.
                group.shrinks_from = max(group.level, len(group.members))
                self._begun(group, count, before)
            case CWNodePoolNodesRemoved():
                self._removed(group, message)
            case CWNodeRequestQueued(count=count):
                group.places = len(group.members) + count
                missing = min(group.granted, group.spec.target) - len(group.members)
                if count != missing or group.deleting:
                    self._fault(group, f"requests {count} Nodes and lacks {missing}")
            case CWNodePoolScaledUp() | CWNodePoolScaledDown():
                self._scaled(group, message)
            case AllocationFailed() | AllocationRecovered():
                group.failing = isinstance(message, AllocationFailed)
            case GrantAcknowledged(granted=granted):
                if group.deleting and not granted:
                    group.granted = 0
            case _:
                pass

    def _scaled(self, group: Group, message: CWNodePoolScaledUp | CWNodePoolScaledDown) -> None:
        before, after = message.before, message.after
        is_up = isinstance(message, CWNodePoolScaledUp)
        is_right = after > before if is_up else after < before
        level = group.level if is_up else max(group.level, group.shrinks_from)
        wanted = group.spec.target if is_up else group.wanted
        if before != level or not is_right or after != wanted:
            way = "up" if is_up else "down"
            self._fault(group, f"is scaled {way} {before} to {after}, last to {level}")
        group.level = after
        if is_up:
            group.places = max(group.places, min(after, len(group.members)))
        else:
            group.places, group.removed = min(group.places, after), None
            group.shrinks_from = 0

    def _begun(self, group: Group, count: int, before: int) -> None:
        lent = len(group.lent)
        expected = {len(group.members) + lent, len(group.staying) + lent}
        expected = expected if group.deleting else {group.surplus}
        if count not in expected or group.removed is not None:
            self._fault(group, f"begins to remove {count} Nodes, not one of {expected}")
        if before != group.shrinks_from:
            self._fault(group, f"begins to remove Nodes of {before}, not of {group.shrinks_from}")
        for member in (*group.members.values(), *group.lent.values()):
            member.counted = False
        group.removed = 0

    def _removed(self, group: Group, message: CWNodePoolNodesRemoved) -> None:
        left, remain = group.removed or 0, len(group.members)
        if (message.count, message.remaining) != (left, remain):
            text = f"reports {message.count} removed, {message.remaining} remain"
            self._fault(group, f"{text}; {left} left and {remain} remain")
        may_leave = group.unanswered or group.has_asked_victim
        if may_leave and not group.deleting:
            self._fault(group, f"reports {message.count} removed, and another Node may still leave")
        group.removed = None


def faults(model: NodesModel) -> Iterator[str]:
    """What was wrong on the way, and what has not begun, or not ended: removals and scalings."""
    yield from model.faults
    for group in model.groups.values():
        for member in group.members.values():
            if member.awaited:
                yield f"{member.node} was to give way, and its preemption has not begun"
        leaving, target = len(group.members) - len(group.staying), group.spec.target
        if not group.valid or group.deleting or leaving or group.has_surplus:
            continue
        if group.removed is not None:
            yield f"{group.key} has removed {group.removed} Nodes, and does not say so"
        level = group.level
        if level > target or (group.within_quota and level != target):
            yield f"{group.key} was scaled to {level} last, and its target is {target}"
