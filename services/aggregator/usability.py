"""Which registered Nodes cannot be used now, since when and why.

A Node cannot be used while it has its own cause for a cordon, while it is rebooted or verified, and
from the beginning of its preemption. Each second counts once, for the first cause. Later causes
count nothing until the Node can be used again, or is deleted.
"""

from datetime import datetime
from typing import Final, NamedTuple

from aggregator.objects import NodeObject
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.node_failures import ADMIN_REBOOT

VERIFICATION: Final = "Verification"
"""The cause for a Node that is being verified, even before its first use."""
PREEMPTION: Final = "Preempted"


class Unusable(NamedTuple):
    """A Node that cannot be used.

    since: since when the Node cannot be used.
    cause: the first cause.
    cordon: the Node's own cause for its cordon now; empty if there is none.
    stage: the stage of its preemption, `pending` or `drain`; empty if it is not preempted.
    """

    since: datetime
    cause: str
    cordon: str
    stage: str


def unusable(
    known: Unusable | None, node: NodeObject, cordon: str, now: datetime
) -> Unusable | None:
    """Return since when and why a Node cannot be used; None if the Node can be used.

    cordon: the cause for which the Node is cordoned now; empty if it is not cordoned.
    """
    if node.registered is None:
        return None
    stage = _stage(node)
    causes = (cordon, PREEMPTION if stage else "", _OF_PHASE.get(node.phase, ""))
    cause = next(filter(None, causes), "")
    if not cause:
        return None
    return Unusable(known.since if known else now, known.cause if known else cause, cordon, stage)


def unhealthy_of(item: Unusable | None, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the labels that count a Node of this NodePool as unhealthy; None if it is not."""
    return (*path, item.cordon) if item is not None and item.cordon else None


def preempting_of(item: Unusable | None, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the labels that count a Node as being preempted; None if it is not preempted."""
    return (*path, item.stage) if item is not None and item.stage else None


_OF_PHASE: Final = {NodePhase.REBOOTING: ADMIN_REBOOT, NodePhase.VERIFYING: VERIFICATION}


def _stage(node: NodeObject) -> str:
    if node.removal is not RemovalReason.PREEMPTED:
        return ""
    return "drain" if node.phase is NodePhase.DRAINING else "pending"
