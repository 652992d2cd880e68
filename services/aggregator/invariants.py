"""Rules that always hold of the log, checked at each event that could break them.

The audit in `tests/support/audit` has more rules. It also checks each event against the messages
that the publishing service had read by then, so it keeps the whole log, which takes unbounded
memory. This module has the rules that need only the state, and that hold in the order of the log
regardless of what a service had read.

The rules are checked here because the aggregator hears of all objects and decides nothing, so an
event that breaks a rule always comes from another service. The preemption service checks the times
of the stages of a preemption, because it hears the commands that allow an earlier stage.

An event that cannot have happened, such as a second Node on a machine, is counted and otherwise
ignored. Any other event that breaks a rule changes the state as usual.
"""

from collections.abc import Mapping
from typing import Final, Literal, assert_never, get_args

from aggregator import Hears
from aggregator.known import State
from aggregator.objects import NodeObject
from nodepool.contract import events as on
from nodepool.contract.keys import LedgerKey, ledger_key
from nodepool.contract.messages import OfNode
from nodepool.contract.model import RemovalReason
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
RULES: Final[tuple[Rule, ...]] = get_args(Rule)
LIMIT_PASSED: Final[Rule] = "LimitPassed"
"""The Nodes that all grants under a limit allow have grown beyond the limit."""
IMPOSSIBLE: Final[frozenset[Rule]] = frozenset(
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


def broken(state: State, message: Hears) -> Rule | Literal[""]:
    """Return the rule about a Node or a NodePool that an event breaks; empty for no rule.

    state: before the event.
    """
    if type(message) not in _CHECKED:
        return ""
    match message:
        case on.CWNodeAssigned():
            return _assigned(state, message)
        case on.NodeConditionReported():
            return ""
        case OfNode():
            node = state.nodes.get(message.node_key)
            if node is None or node.assignment != message.assignment:
                return "NodeUnknown"
            return _changed(state, node, message)
        case on.NodePoolValidated():
            return _validated(state, message)
        case on.CWNodePoolNodesRemoved(removal=RemovalReason.POOL_DELETED) | on.CWNodePoolDeleted():
            pool = state.pools.get(message.key)
            is_same = pool is not None and pool.uid == message.uid
            is_empty = pool is None or not (pool.held or pool.away)
            return "NodePoolNotEmpty" if is_same and not is_empty else ""
        case _:
            return ""


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


def limit_passed(state: State, after: Mapping[LedgerKey, int], event: on.QuotaChecked) -> bool:
    """Return whether a grant has made the reserved Nodes grow beyond the limit.

    A limit that falls below the reserved Nodes breaks no rule.

    A grant covers the Nodes that its NodePool had as far as the quota service had read. Some of
    these Nodes may have left since; then the count that was published before was no lower. A Node
    that the control plane gave back counts once the quota service has read so, also beyond the
    limit. So a grant of a NodePool that ever lent a Node is not checked, and the Nodes that such
    NodePools have above their grants do not count against other NodePools.

    state: before the event.
    after: how many Nodes the NodePools under each limit may come to hold after the event.
    """
    key = ledger_key(event.org, event.zone, event.instance_type)
    published = state.quotas.get(key)
    allowed = max(event.limit or 0, published.used if published else 0)
    reserved = after.get(key, 0)
    if reserved <= max(allowed, state.pool_figures.reserved.get(key, 0)):
        return False
    lent = [pool for pool in state.pools.values() if pool.has_lent and pool.ledger == key]
    beyond = sum(max(0, pool.held - state.pool_figures.usable(pool.key)) for pool in lent)
    is_checked = event.key not in {pool.key for pool in lent}
    return is_checked and reserved - beyond > allowed


def _assigned(state: State, event: on.CWNodeAssigned) -> Rule | Literal[""]:
    machine = state.inventory.machines.get(event.machine_key)
    if machine is None:
        return "MachineUnknown"
    if machine.holder:
        return "MachineHeld"
    pool = state.pools.get(event.key)
    if pool is None or pool.uid != event.uid:
        return "NodePoolUnknown"
    if machine.instance_type != pool.spec.instance_type:
        return "MachineUnfit"
    if event.assignment <= machine.assignment:
        return "AssignmentNotNew"
    # A Node that the control plane gave back counts once the allocator has read that event.
    is_passed = pool.held >= state.pool_figures.usable(event.key) and not pool.has_lent
    return "GrantPassed" if is_passed else ""


def _changed(state: State, node: NodeObject, event: OfStay) -> Rule | Literal[""]:
    is_registered = node.registered is not None
    match event:
        case on.NodeUpdated():
            if not is_registered:
                return "NodeUnregistered"
            return "" if may_follow(node.phase, event.phase) else "PhaseOutOfOrder"
        case on.CWNodeRegistered():
            return "RegisteredTwice" if is_registered else ""
        case on.CWDrainNode() | on.CWNodeCordoned() | on.CWNodeUncordoned():
            return "" if is_registered else "NodeUnregistered"
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            said = isinstance(event, on.CWNodeDeleted) and event.registered
            if said is not is_registered:
                return "CountsDisagree"
            pool = state.pools.get(event.key)
            is_known = pool is not None and pool.uid == event.uid
            return "" if is_known else "NodePoolUnknown"
        case on.NodeActivityChanged() | on.NodeReportRequested() | on.NodeReservationChanged():
            return ""
        case _:
            assert_never(event)


def _validated(state: State, event: on.NodePoolValidated) -> Rule | Literal[""]:
    pool = state.pools.get(event.key)
    if pool is None:
        return ""
    if pool.uid != event.uid:
        return "NodePoolReplaced"
    if event.generation < pool.generation:
        return "GenerationBackwards"
    is_same = event.spec.instance_type == pool.spec.instance_type
    return "" if is_same else "InstanceTypeChanged"
