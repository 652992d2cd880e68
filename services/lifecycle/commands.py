"""The commands about a Node: why they are refused, and what they change."""

from typing import NamedTuple, assert_never

from lifecycle.health import Asked, Manner
from lifecycle.node import Node
from nodepool.contract.commands import (
    CordonNode,
    DrainNode,
    RebootNode,
    ReserveNode,
    UncordonNode,
)
from nodepool.contract.commands_slurm import LockNode
from nodepool.contract.cordons import can_be_reserved, is_found
from nodepool.contract.events import RefusalReason
from nodepool.contract.health import cordon_cause
from nodepool.contract.keys import CONTROL_PLANE, pool_path
from nodepool.contract.model import NodePhase
from nodepool.contract.node_failures import RACK_UNAVAILABLE, RESERVATION_PENDING

NodeCommand = CordonNode | UncordonNode | DrainNode | RebootNode | ReserveNode
"""The commands about a Node."""
PhaseCommand = NodeCommand | LockNode
"""The commands that a Node accepts only in some phases."""
REASON_MAX = 100
"""The maximum length of the reason for a cordon, in characters."""


class Refusal(NamedTuple):
    """Why a command is refused: the field at fault, one sentence, and the kind of refusal."""

    field: str
    message: str
    reason: RefusalReason = "Invalid"


def find_fault(command: NodeCommand) -> Refusal | None:
    """Return why a command is refused whatever its Node does; None if the command is right."""
    match command:
        case CordonNode(reason=reason) | DrainNode(reason=reason):
            fault = _reason_fault(reason)
            return Refusal("reason", fault) if fault else None
        case ReserveNode(org=org, reserved_desired=wanted):
            if wanted in (org, CONTROL_PLANE):
                return None
            return Refusal("reservedDesired", f"must be {CONTROL_PLANE} or {org}")
        case UncordonNode() | RebootNode():
            return None
        case _:
            assert_never(command)


def _reason_fault(reason: str) -> str:
    if not reason or reason != reason.strip():
        return "must not be empty, nor begin or end with a space"
    if len(reason) > REASON_MAX:
        return f"must have at most {REASON_MAX} characters"
    if "," in reason or not reason.isprintable():
        return "must have no commas and no characters that cannot be printed"
    if is_found(reason):
        return f"must not be {reason}, which is said only where it is found"
    return ""


def refuse_unknown(command: NodeCommand) -> Refusal:
    """Return the refusal of a command about a Node that its NodePool does not have."""
    return Refusal("node", f"{command.node} is no Node of NodePool {command.pool}", "NotFound")


def find_conflict(node: Node, command: PhaseCommand) -> Refusal | None:
    """Return why a Node cannot follow a command now; None if it can."""
    if isinstance(command, LockNode):
        reason = _unlockable(node)
        return Refusal("node", f"Node {node.name} {reason}", "Conflict") if reason else None
    if node.is_booting:
        return Refusal("node", f"{node.name} has not joined its cluster yet; wait until it has")
    if not node.exit.is_for_health:
        return Refusal("node", f"{node.name} is leaving its NodePool ({node.exit.reason})")
    if isinstance(command, ReserveNode) and not _can_be_reserved(node):
        is_same = command.reserved_desired == node.health.asked.reserved_desired
        if not is_same and not node.health.is_pending:
            return Refusal("node", f"{node.name} is {node.phase}; it can be reserved in production")
    if isinstance(command, UncordonNode) and not _is_asked(node) and _stays_cordoned(node):
        names = ", ".join(_stays_cordoned(node))
        return Refusal("node", f"{node.name} is cordoned until this is over: {names}")
    return None


def _can_be_reserved(node: Node) -> bool:
    """Return whether a Node can be reserved; in production also if it waits for an action."""
    is_waiting = _is_asked(node) or node.exit.reason is not None
    is_ready = node.phase is NodePhase.PRODUCTION or not is_waiting
    return is_ready and can_be_reserved(node.phase, node.health.causes)


def _unlockable(node: Node) -> str:
    """Return why no job can take the lock of a Node; empty if a job can, or has the lock."""
    if node.work.lock is not None:
        return ""
    if node.is_booting:
        return "has not joined its cluster yet"
    if node.exit.reason is not None:
        return f"leaves its NodePool ({node.exit.reason.value})"
    if not node.health.is_usable:
        return "is reserved for the control plane"
    if node.is_cordoned:
        return "is cordoned"
    if node.phase is not NodePhase.PRODUCTION:
        return f"is not in production: {node.phase.value}"
    return ""


def _stays_cordoned(node: Node) -> list[str]:
    """Return the causes of a cordon that `UncordonNode` does not end."""
    health, desired = node.health, node.health.asked.reserved_desired
    causes = [cordon_cause(problem.type) for problem in health.findings]
    causes += [f"{RESERVATION_PENDING} {desired}"] if health.is_pending else []
    return [*causes, f"{RACK_UNAVAILABLE} {health.rack}"] if health.rack else causes


def _is_asked(node: Node) -> bool:
    asked = node.health.asked
    return bool(asked.cordon or asked.drain or asked.reboot)


def add_to_asked(node: Node, command: NodeCommand) -> Asked:
    """Return what is asked for a Node after a command that is not refused."""
    asked = node.health.asked
    match command:
        case CordonNode(reason=reason):
            return asked._replace(cordon=reason)
        case UncordonNode():
            return asked._replace(cordon="", drain="", reboot="")
        case DrainNode(reason=reason, force=force):
            drain = _manner(force=force or asked.drain == "forced")
            return asked._replace(cordon=asked.cordon or reason, drain=drain)
        case RebootNode(force=force):
            if node.phase is NodePhase.REBOOTING:
                return asked
            return asked._replace(reboot=_manner(force=force or asked.reboot == "forced"))
        case ReserveNode(reserved_desired=wanted):
            now = node.health.reserved or pool_path(node.pool)[0]
            return asked._replace(reserved_desired="" if wanted == now else wanted)
        case _:
            assert_never(command)


def _manner(*, force: bool) -> Manner:
    return "forced" if force else "safe"
