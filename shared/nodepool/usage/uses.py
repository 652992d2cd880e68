"""What a Node is at each moment: used, idle, lost, or not billable; exactly one of these.

A Node begins with its assignment, and ends when it is deleted or its registration has failed.
"""

from enum import StrEnum
from typing import Final

from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.node_failures import ADMIN_REBOOT


class Use(StrEnum):
    """What a Node is used for.

    JOINING: it is assigned and has not joined its cluster yet.
    RESERVED: it is reserved for the control plane, whatever runs there; see
        https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
    USED: a workload runs there, also while the Node is cordoned, preempted or verified.
    LOST: nothing runs there, and nothing can: its own cordon or that of its rack, a reboot, a
        verification, or its preemption.
    IDLE: nothing runs there, and the Node is what its NodePool wants; also while it is drained
        because its NodePool shrinks or is deleted.
    """

    USED = "used"
    IDLE = "idle"
    LOST = "lost"
    JOINING = "joining"
    RESERVED = "reserved"


BILLABLE: Final = (Use.USED, Use.IDLE, Use.LOST)
"""What an organisation holds; what is lost is named by cause, for contracts that credit it."""
VERIFICATION: Final = "Verification"
"""The cause for a Node that is being verified, even before its first use."""
PREEMPTION: Final = "Preempted"
_OF_PHASE: Final = {NodePhase.REBOOTING: ADMIN_REBOOT, NodePhase.VERIFYING: VERIFICATION}


def cause_of(cordon: str, removal: RemovalReason | None, phase: NodePhase) -> str:
    """Return why a registered Node cannot be used now, by the first of its causes.

    cordon: the cause of the cordon, which may be the rack of the Node; empty without a cordon.
    Empty if it can be used. A Node that cannot be used keeps the cause with which that began.
    """
    is_preempted = removal is RemovalReason.PREEMPTED
    causes = (cordon, PREEMPTION if is_preempted else "", _OF_PHASE.get(phase, ""))
    return next(filter(None, causes), "")


def use_of(
    *, is_registered: bool, is_usable: bool, is_active: bool, phase: NodePhase, is_lost: bool
) -> Use:
    """Return what a Node is used for.

    is_usable: whether it is not reserved for the control plane.
    is_active: whether a workload runs there; what was known before a reboot counts nothing in it.
    is_lost: whether there is a cause for which it cannot be used.
    """
    if not is_registered:
        return Use.JOINING
    if not is_usable:
        return Use.RESERVED
    if is_active and phase is not NodePhase.REBOOTING:
        return Use.USED
    return Use.LOST if is_lost else Use.IDLE
