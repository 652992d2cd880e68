"""The rules that always hold of the log, each stated once.

The aggregator counts each broken rule in a metric: it hears of all objects and decides nothing, so
an event that breaks a rule always comes from another service. The audit of the tests fails at it.

`broken_rule` evaluates the rules that follow from the log alone, regardless of which messages a
service had read. Three rules are evaluated elsewhere, because each checker knows other facts:

* GrantPassed: a NodePool gets a Node beyond its grants.
* LimitPassed: the Nodes that all grants under a limit allow have grown beyond the limit.
* PreemptionStageEarly: the preemption service counts it, since it hears the commands that allow an
  earlier stage.
"""

from typing import Final, Literal, Protocol, assert_never, get_args

from nodepool.contract import events as on
from nodepool.contract.keys import MachineKey, PoolKey
from nodepool.contract.messages import OfNode
from nodepool.contract.model import NodePhase, NodePoolSpec, RemovalReason
from nodepool.contract.node_states import may_follow

Rule = Literal[
    "AssignmentNotNew",
    "CountsDisagree",
    "GenerationBackwards",
    "GrantPassed",
    "InstanceTypeChanged",
    "LimitPassed",
    "MachineHeld",
    "MachineUnfit",
    "MachineUnknown",
    "NodePoolNotEmpty",
    "NodePoolReplaced",
    "NodePoolUnknown",
    "NodeUnknown",
    "NodeUnregistered",
    "PhaseOutOfOrder",
    "RegisteredTwice",
]
"""The names of the rules in metrics; each name says what is wrong if the rule is broken."""
Broken = Rule | Literal[""]
"""The rule that an event breaks; empty for no rule."""
RULES: Final[tuple[Rule, ...]] = get_args(Rule)
IMPOSSIBLE: Final[frozenset[Broken]] = frozenset(
    ("MachineHeld", "MachineUnknown", "NodeUnknown", "RegisteredTwice", "CountsDisagree")
)
"""The rules whose breach means that the event cannot have happened."""
OfStay = (
    on.NodeUpdated
    | on.NodeActivityChanged
    | on.NodeReportRequested
    | on.NodeReservationChanged
    | on.CWDrainNode
    | on.CWNodeRegistered
    | on.CWNodeDeleted
    | on.CWNodeRegistrationFailed
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
)
"""The events about a stay of a machine in a NodePool."""


class KnownMachine(Protocol):
    """A machine, and whether the allocator may have found it free."""

    @property
    def zone(self) -> str: ...
    @property
    def instance_type(self) -> str: ...
    @property
    def may_be_given_away(self) -> bool: ...


class KnownPool(Protocol):
    """A NodePool; the Nodes that are reserved for the control plane are present too."""

    @property
    def uid(self) -> str: ...
    @property
    def zone(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def spec(self) -> NodePoolSpec: ...
    @property
    def present(self) -> int: ...


class KnownNode(Protocol):
    """A Node that has not left its NodePool."""

    @property
    def phase(self) -> NodePhase: ...
    @property
    def is_registered(self) -> bool: ...


class Known(Protocol):
    """What the log says before an event."""

    def machine(self, key: MachineKey) -> KnownMachine | None:
        """Return a machine; None if it was never added."""
        ...

    def last_assignment(self, key: MachineKey) -> int:
        """Return the number of the last assignment of a machine, or a later number that is used."""
        ...

    def pool(self, key: PoolKey) -> KnownPool | None:
        """Return the NodePool that has this key now."""
        ...

    def node(self, event: OfNode) -> KnownNode | None:
        """Return the Node whose assignment the event names; None if it left, or never was."""
        ...


def broken_rule(known: Known, message: object) -> Broken:
    """Return the rule that an event breaks, given what is known before the event."""
    if type(message) not in _CHECKED:
        return ""
    match message:
        case on.CWNodeAssigned():
            return _broken_by_assignment(known, message)
        case on.NodePoolValidated():
            return _broken_by_spec(known.pool(message.key), message)
        case on.CWNodePoolNodesRemoved(removal=RemovalReason.POOL_DELETED) | on.CWNodePoolDeleted():
            pool = _same_pool(known, message.key, message.uid)
            return "NodePoolNotEmpty" if pool is not None and pool.present else ""
        case _:
            return _broken_by_node(known, message) if isinstance(message, OfStay) else ""


_CHECKED: Final = frozenset(
    (
        *get_args(OfStay),
        on.CWNodeAssigned,
        on.NodePoolValidated,
        on.CWNodePoolNodesRemoved,
        on.CWNodePoolDeleted,
    )
)
"""A look-up of the class takes a tenth of the time of matching all these classes."""


def _broken_by_assignment(known: Known, event: on.CWNodeAssigned) -> Broken:
    machine = known.machine(event.machine_key)
    if machine is None:
        return "MachineUnknown"
    if not machine.may_be_given_away:
        return "MachineHeld"
    pool = _same_pool(known, event.key, event.uid)
    if pool is None:
        return "NodePoolUnknown"
    if (machine.zone, machine.instance_type) != (pool.zone, pool.spec.instance_type):
        return "MachineUnfit"
    is_new = event.assignment > known.last_assignment(event.machine_key)
    return "" if is_new else "AssignmentNotNew"


def _broken_by_spec(pool: KnownPool | None, event: on.NodePoolValidated) -> Broken:
    if pool is None:
        return ""
    if pool.uid != event.uid:
        return "NodePoolReplaced"
    if event.generation < pool.generation:
        return "GenerationBackwards"
    is_same = event.spec.instance_type == pool.spec.instance_type
    return "" if is_same else "InstanceTypeChanged"


def _broken_by_node(known: Known, event: OfStay) -> Broken:
    node = known.node(event)
    if node is None:
        return "NodeUnknown"
    match event:
        case on.NodeUpdated():
            if not node.is_registered:
                return "NodeUnregistered"
            return "" if may_follow(node.phase, event.phase) else "PhaseOutOfOrder"
        case on.CWNodeRegistered():
            return "RegisteredTwice" if node.is_registered else ""
        case on.CWDrainNode() | on.CWNodeCordoned() | on.CWNodeUncordoned():
            return "" if node.is_registered else "NodeUnregistered"
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            was_registered = isinstance(event, on.CWNodeDeleted) and event.registered
            if was_registered is not node.is_registered:
                return "CountsDisagree"
            pool = _same_pool(known, event.key, event.uid)
            return "NodePoolUnknown" if pool is None else ""
        case on.NodeActivityChanged() | on.NodeReportRequested() | on.NodeReservationChanged():
            return ""
        case _:
            assert_never(event)


def _same_pool(known: Known, key: PoolKey, uid: str) -> KnownPool | None:
    pool = known.pool(key)
    return pool if pool is not None and pool.uid == uid else None
