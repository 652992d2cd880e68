"""The allocator alone, with one NodePool and short forms of the messages in its tests.

Machines and Nodes are given by number: the machine `g3` is the third that was added, and the Node
of the third assignment unless machines are assigned again.
"""

from allocator import Hears, Says
from allocator.decide import SERVICE
from allocator.pool import Pool
from allocator.state import State
from contracts.samples import KIND, ZONE, sample
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.conditions import HEALTHY, Capacity, Quota, Validated
from nodepool.contract.events import (
    CapacityChecked,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeDeliverFail,
    CWNodePoolNodesRemoved,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    CWNodePoolScaledUp,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeRequestQueued,
    GrantAcknowledged,
    MachineAdded,
    NodeActivityChanged,
    NodeKept,
    NodePoolDeleting,
    NodePoolValidated,
    NodeRemovalCancelled,
    NodeReservationChanged,
    NodeUpdated,
    PreemptionPending,
    QuotaChecked,
    Wake,
)
from nodepool.contract.keys import pool_key
from nodepool.contract.messages import PoolFields, pool_fields
from nodepool.contract.model import (
    Lifecycle,
    NodePoolSpec,
    RemovalReason,
    ScaleDownStrategy,
)
from nodepool.contract.outcomes import CommandOutcome
from support.single import SingleService

POOL = pool_key("acme", "prod", "train")
OF: PoolFields = pool_fields(POOL)
POOL_DELETED = RemovalReason.POOL_DELETED
SCALE_DOWN = RemovalReason.SCALE_DOWN
IDLE_ONLY, PREFER_IDLE = ScaleDownStrategy.IDLE_ONLY, ScaleDownStrategy.PREFER_IDLE
UID = "train.1"
NO_POSITION = {"since": None, "owner": None, "exchanged": None}
"""An assignment without the position that it fills."""
RACK_KIND = next(kind.id for kind in INSTANCE_TYPES.values() if kind.rack_size and kind.zones)
RACK_ZONE = INSTANCE_TYPES[RACK_KIND].zones[0]
Outputs = list[Says | CommandOutcome]


class NodeFields(PoolFields):
    """The identity of a Node as the fields of a message about it."""

    zone: str
    node: str
    assignment: int


class AllocatorService(SingleService[State, Hears, Says]):
    """The allocator alone, with shortcuts for what it hears most often."""

    def __init__(self) -> None:
        super().__init__(SERVICE)
        self.generation = 0

    def process(self, message: Hears | Wake, id: str = "") -> Outputs:
        """The outputs for one message; the laws of placement check the positions that they fill."""
        return [
            output.model_copy(update=NO_POSITION) if isinstance(output, CWNodeAssigned) else output
            for output in super().process(message, id)
        ]

    def given_machines(self, count: int) -> None:
        """So many free machines."""
        assert self.hears(*(machine_added(number) for number in range(1, count + 1))) == []

    def given_nodes(self, count: int) -> None:
        """The NodePool with so many registered Nodes, all idle, each newer than the one before."""
        self.scale(count)
        for number in range(1, count + 1):
            assert self.hears(machine_added(number)) == [assigned(number)]
        assert self.hears(*(registered(number) for number in range(1, count + 1))) == []

    def specify(self, target: int, strategy: ScaleDownStrategy = IDLE_ONLY) -> NodePoolValidated:
        """The next generation of the NodePool, with this target."""
        self.generation += 1
        lifecycle = Lifecycle(scale_down_strategy=strategy)
        spec = NodePoolSpec(instance_type=KIND, target_nodes=target, lifecycle=lifecycle)
        return specified(self.generation, target, spec=spec)

    def scale(self, target: int, strategy: ScaleDownStrategy = IDLE_ONLY) -> Outputs:
        """The outputs when the NodePool has a new target, and every check of it passes."""
        return self.hears(
            self.specify(target, strategy),
            granted(self.generation, target),
            capacity_checked(self.generation, target),
        )

    @property
    def pool(self) -> Pool:
        """What the allocator has folded of the NodePool."""
        return self.state.pools[POOL]

    @property
    def leaving(self) -> int:
        """How many Nodes of the NodePool leave, for any reason."""
        counts = self.pool.members.counts
        return counts.held - counts.staying


def allocator_with_nodes(count: int) -> AllocatorService:
    """The allocator with a NodePool of so many registered Nodes, all idle."""
    allocator = AllocatorService()
    allocator.given_nodes(count)
    return allocator


def of_node(number: int, assignment: int = 0) -> NodeFields:
    """The identity of the Node of this number; in its first assignment, unless one is given."""
    return {**OF, "zone": ZONE, "node": f"g{number}", "assignment": assignment or number}


# What the service hears.


def specified(generation: int, target: int, **fields: object) -> NodePoolValidated:
    """The NodePool with this target, valid; `fields` replaces fields of the message."""
    default: dict[str, object] = {
        "uid": UID,
        "generation": generation,
        "spec": NodePoolSpec(instance_type=KIND, target_nodes=target),
        "reason": Validated.VALID,
        "fault": "",
        "message": HEALTHY[Validated.VALID],
    }
    return sample(NodePoolValidated, **OF, **{**default, **fields})


def with_faulty_settings(generation: int, target: int, message: str) -> NodePoolValidated:
    """The NodePool with settings that are not valid."""
    return specified(
        generation, target, reason=Validated.INVALID, fault="Settings", message=message
    )


def granted(generation: int, count: int, uid: str = UID, number: int = 0) -> QuotaChecked:
    """The NodePool may have so many Nodes, which is its whole target."""
    return sample(
        QuotaChecked,
        **OF,
        uid=uid,
        generation=generation,
        granted=count,
        number=number or generation,
        reason=Quota.UNDER,
    )


def over_quota(generation: int, count: int) -> QuotaChecked:
    """The NodePool may have so many Nodes, which is less than it asks for."""
    return sample(
        QuotaChecked,
        **OF,
        uid=UID,
        generation=generation,
        granted=count,
        number=generation,
        reason=Quota.OVER,
    )


def capacity_checked(generation: int, count: int) -> CapacityChecked:
    """Capacity was checked for a grant of so many Nodes."""
    return sample(
        CapacityChecked,
        **OF,
        uid=UID,
        generation=generation,
        granted=count,
        reason=Capacity.SUFFICIENT,
    )


def pool_deleting() -> NodePoolDeleting:
    """The NodePool is being deleted."""
    return sample(NodePoolDeleting, **OF, uid=UID)


def machine_added(number: int) -> MachineAdded:
    """A new machine, free."""
    return MachineAdded(zone=ZONE, machine=f"g{number}", instance_type=KIND)


def rack_machine(number: int) -> MachineAdded:
    """A new machine, free, of a type that comes in racks of 18."""
    return MachineAdded(zone=RACK_ZONE, machine=f"g{number}", instance_type=RACK_KIND)


def registered(number: int) -> CWNodeRegistered:
    """A Node joins its cluster."""
    return sample(CWNodeRegistered, **of_node(number))


def registration_failed(number: int, message: str) -> CWNodeRegistrationFailed:
    """A Node does not join its cluster, and has left the NodePool."""
    return sample(CWNodeRegistrationFailed, **of_node(number), uid=UID, message=message)


def node_deleted(number: int, removal: RemovalReason = RemovalReason.UNHEALTHY) -> CWNodeDeleted:
    """A Node has left the NodePool, for this reason where one is known."""
    return sample(CWNodeDeleted, **of_node(number), uid=UID, removal=removal)


def preemption_pending(number: int) -> PreemptionPending:
    """A Node is being preempted."""
    return sample(PreemptionPending, **of_node(number))


def active(number: int, active: bool = True) -> NodeActivityChanged:
    """Workloads run on a Node, or do not any more."""
    return sample(NodeActivityChanged, **of_node(number), active=active)


def reserved(number: int) -> NodeReservationChanged:
    """A Node is reserved for the control plane."""
    return NodeReservationChanged(**of_node(number), usable=False)


def replacing(number: int, removal: RemovalReason | None = RemovalReason.UNHEALTHY) -> NodeUpdated:
    """An unhealthy Node waits until nothing blocks its removal, or does not leave any more."""
    return sample(NodeUpdated, **of_node(number), removal=removal)


def kept(number: int, request: int) -> NodeKept:
    """A Node stays, although this request was to delete it."""
    return sample(NodeKept, **of_node(number), request=request)


# What the service says.


def acknowledged(generation: int, count: int, number: int | None = None) -> GrantAcknowledged:
    """From here on the allocator works to this smaller grant, by default the one of its number."""
    number = generation if number is None else number
    return GrantAcknowledged(**OF, uid=UID, generation=generation, granted=count, number=number)


def given_back(generation: int) -> GrantAcknowledged:
    """From here on the allocator works to no grant any more: the NodePool is being deleted."""
    return GrantAcknowledged(**OF, uid=UID, generation=generation, granted=0, final=True)


def deliver_fail(message: str, node: str = "") -> CWNodeDeliverFail:
    """Nodes, or one Node, cannot be delivered."""
    return CWNodeDeliverFail(**OF, node=node, message=message)


def nodes(count: int) -> str:
    """Return a number of Nodes in words."""
    return "1 Node" if count == 1 else f"{count} Nodes"


def queued(count: int, granted: int) -> CWNodeRequestQueued:
    """So many Nodes are requested, with which the NodePool has all that it was granted."""
    text = f"requested {nodes(count)} of {KIND}"
    return CWNodeRequestQueued(**OF, count=count, granted=granted, message=text)


def assigned(number: int, assignment: int = 0) -> CWNodeAssigned:
    """The machine of this number joins the NodePool, in its first assignment or a later one."""
    return CWNodeAssigned(
        **of_node(number, assignment),
        uid=UID,
        instance_type=KIND,
        message=f"Node g{number} is assigned to NodePool train",
    )


def scaled_up(before: int, after: int) -> CWNodePoolScaledUp:
    """A larger target was granted."""
    text = f"scaled up from {before} to {nodes(after)}"
    return CWNodePoolScaledUp(**OF, before=before, after=after, message=text)


def scaled_down(before: int, after: int) -> CWNodePoolScaledDown:
    """A scale-down is complete."""
    text = f"scaled down from {before} to {nodes(after)}"
    return CWNodePoolScaledDown(**OF, before=before, after=after, message=text)


def removing(count: int, before: int, cause: str = "IdleOnly") -> CWNodePoolRemoveNodes:
    """A removal of so many Nodes begins."""
    text = f"removing {nodes(count)} ({cause})"
    return CWNodePoolRemoveNodes(**OF, count=count, before=before, message=text)


def requested(
    number: int,
    removal: RemovalReason = RemovalReason.SCALE_DOWN,
    request: int = 1,
    *,
    idle_only: bool = True,
) -> CWNodeDeletionRequestSuccess:
    """A Node is to be deleted; for a scale-down only if it is idle."""
    return CWNodeDeletionRequestSuccess(
        **of_node(number),
        removal=removal,
        idle_only=idle_only and removal is RemovalReason.SCALE_DOWN,
        request=request,
        message=f"deletion of Node g{number} requested",
    )


def cancelled(number: int) -> NodeRemovalCancelled:
    """A Node that was to be deleted for a scale-down may stay."""
    return NodeRemovalCancelled(**of_node(number))


def nodes_removed(count: int, remaining: int) -> CWNodePoolNodesRemoved:
    """So many Nodes were removed in a scale-down."""
    return CWNodePoolNodesRemoved(
        **OF,
        uid=UID,
        count=count,
        remaining=remaining,
        removal=RemovalReason.SCALE_DOWN,
        message=f"{nodes(count)} removed, {remaining} {'remains' if remaining == 1 else 'remain'}",
    )


def emptied(count: int) -> CWNodePoolNodesRemoved:
    """The NodePool, which is being deleted, has no Nodes any more."""
    return CWNodePoolNodesRemoved(
        **OF,
        uid=UID,
        count=count,
        remaining=0,
        removal=RemovalReason.POOL_DELETED,
        message=f"{nodes(count)} removed, 0 remain",
    )
