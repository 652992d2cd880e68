"""The failures of a Node, named as metrics name them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aggregator import NodeLeft
from aggregator.objects import NodeObject
from nodepool.contract.events import CWNodeDeleted, MachineStateChanged
from nodepool.contract.health import cordon_cause, is_problem
from nodepool.contract.messages import OfMachine
from nodepool.contract.node_failures import NodeFailure, failure_of
from nodepool.contract.node_states import MachineState

_AT_THE_END: Final = (
    NodeFailure.REBOOT_FAILED,
    NodeFailure.NOT_REBOOTED,
    NodeFailure.VERIFICATION_FAILED,
    NodeFailure.NOT_VERIFIED,
)
"""The failures that become known only when the Node is deleted because of them."""

_TAKEN_OUT: Final[Mapping[MachineState, str]] = MappingProxyType(
    {MachineState.ZAP_FAIL: "WipeFailed", MachineState.TRIAGE: "TakenOut"}
)
"""The cause if a machine goes out of service from a wipe, or while free, by its new state."""


def problems_of(node: NodeObject) -> frozenset[str]:
    """Return the types of the conditions that report a problem of a Node now."""
    reported = node.reported
    return frozenset(each.type for each in reported if is_problem(each.type, each.status))


def triage_cause(event: NodeLeft, node: NodeObject) -> str:
    """Return why the machine of a Node that left goes to triage; empty if it does not."""
    if isinstance(event, CWNodeDeleted) and not event.triage:
        return ""
    return failure_of(event.message) or _problem(node) or _choose_default_cause(event)


def outage_cause(event: OfMachine) -> str:
    """Return why a machine goes out of service that is no Node; empty for other events."""
    return _TAKEN_OUT.get(event.state, "") if isinstance(event, MachineStateChanged) else ""


def failure_at_the_end(event: NodeLeft, cause: str) -> str:
    """Return the failure that ended a Node and was not counted before; empty for no failure.

    A problem is counted when it is reported, and a silent machine when it is given up.
    """
    if not isinstance(event, CWNodeDeleted):
        return cause
    return cause if cause in _AT_THE_END else ""


def _problem(node: NodeObject) -> str:
    """Return the first problem that is reported of a Node now; empty for no problem."""
    problems = problems_of(node)
    return cordon_cause(min(problems)) if problems else ""


def _choose_default_cause(event: NodeLeft) -> str:
    """Return the cause if no message names it: a deleted Node did not answer and was given up."""
    is_silent = isinstance(event, CWNodeDeleted)
    return (NodeFailure.UNANSWERED if is_silent else NodeFailure.OTHER).value
