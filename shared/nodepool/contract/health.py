"""What makes a Node unhealthy, and what cures it.

Which problems a reboot cures, and which need a technician, follows what is published: by NVIDIA of
Xid errors (https://docs.nvidia.com/deploy/xid-errors/), and by those who repair Nodes, such as
https://learn.microsoft.com/azure/aks/gpu-health-monitoring, whose conditions these are, and
https://docs.nebius.com/kubernetes/maintenance/health-checks. `KernelDeadlock` and
`ReadonlyFilesystem` are conditions of https://github.com/kubernetes/node-problem-detector, and
`Ready` is the one of https://kubernetes.io/docs/reference/node/node-status/#condition.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from nodepool.contract.conditions import ConditionStatus
from nodepool.contract.words import Word

NodeFault = Literal["xid", "nvlink", "gpu-lost", "disk", "kernel-deadlock", "link-flap", "kubelet"]
"""How a simulated machine fails while it is a Node."""


class Remedy(Word):
    """What cures a Node: a reboot, a reboot by its power supply, or a technician."""

    REBOOT = "reboot"
    POWERRESET = "powerreset"
    TRIAGE = "triage"


class Cause(NamedTuple):
    """A problem of a Node.

    type: of the condition that reports it.
    status: of that condition while there is the problem.
    reason, healthy: the reason of the condition while there is the problem, and else.
    remedy: what cures it.
    ends_at_reboot: whether it is gone after a reboot, at least for some time.
    message: what the condition says of it.
    """

    type: str
    status: ConditionStatus
    reason: str
    healthy: str
    remedy: Remedy
    ends_at_reboot: bool
    message: str


CAUSES: Final[Mapping[NodeFault, Cause]] = {
    "xid": Cause(
        "XIDErrors",
        "True",
        "XIDErrors",
        "NoXIDErrors",
        Remedy.REBOOT,
        True,
        "Xid 95: uncontained ECC error",
    ),
    "nvlink": Cause(
        "NVLinkStatusInactive",
        "True",
        "NVLinkStatusInactive",
        "NVLinkStatusActive",
        Remedy.POWERRESET,
        True,
        "Xid 74: NVLink error",
    ),
    "gpu-lost": Cause(
        "GPUMissing",
        "True",
        "GPUMissing",
        "NoGPUMissing",
        Remedy.TRIAGE,
        False,
        "Xid 79: GPU has fallen off the bus",
    ),
    "disk": Cause(
        "ReadonlyFilesystem",
        "True",
        "FilesystemIsReadOnly",
        "FilesystemIsNotReadOnly",
        Remedy.TRIAGE,
        False,
        "Remounting filesystem read-only",
    ),
    "kernel-deadlock": Cause(
        "KernelDeadlock",
        "True",
        "CPUSoftLockup",
        "KernelHasNoDeadlock",
        Remedy.REBOOT,
        True,
        "watchdog: BUG: soft lockup",
    ),
    "link-flap": Cause(
        "IBLinkFlapping",
        "True",
        "IBLinkFlapping",
        "NoIBLinkFlapping",
        Remedy.POWERRESET,
        True,
        "an InfiniBand link goes down and up again",
    ),
    "kubelet": Cause(
        "Ready",
        "Unknown",
        "NodeStatusUnknown",
        "KubeletReady",
        Remedy.TRIAGE,
        True,
        "Kubelet stopped posting node status.",
    ),
}
"""Each fault with the condition that reports it.

A Node that does not answer cannot be drained, and what runs there may still do so: it has as long
as any machine to answer, and is then replaced.
"""
READY: Final = CAUSES["kubelet"].type
"""The condition that has the status Unknown while a Node is silent."""
BY_TYPE: Final[Mapping[str, Cause]] = {cause.type: cause for cause in CAUSES.values()}
"""The problem that each condition reports; a condition of another type reports none."""

WIDE_FROM: Final = 3
"""The minimum number of silent Nodes for a widespread silence."""
BEGINS_AT: Final = 0.55
"""The share of silent Nodes at which a silence becomes widespread."""
ENDS_BELOW: Final = 0.5
"""The share of silent Nodes below which a silence is no longer widespread."""


def is_widespread(silent: int, nodes: int, *, already: bool) -> bool:
    """Return whether so many silent Nodes of a zone or of a cluster are no fault of each.

    Kubernetes has such a rule for its zones, see
    https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction.

    already: whether their silence is widespread so far.
    """
    share = ENDS_BELOW if already else BEGINS_AT
    return silent >= max(WIDE_FROM, share * nodes)


def is_problem(type: str, status: str) -> bool:  # Of a condition.
    """Return whether a condition of this type and status makes its Node unhealthy."""
    cause = BY_TYPE.get(type)
    return cause is not None and cause.status == status


def cordon_cause(type: str) -> str:  # Of a condition.
    """Return the name of the problem that a condition reports, as the cause of a cordon.

    The name is the type of the condition, except that a Node whose `Ready` is not True is
    `NotReady`, as kubectl prints it.
    """
    return "NotReady" if type == "Ready" else type


def causes_table() -> str:
    """Return the faults that make a Node unhealthy, as a table in Markdown."""
    lines = [
        "| Fault of a simulated machine | Condition | Reason | What cures it |",
        "| --- | --- | --- | --- |",
    ]
    for fault, cause in CAUSES.items():
        condition = f"`{cause.type}` {cause.status}"
        lines.append(f"| `{fault}` | {condition} | `{cause.reason}` | {cause.remedy.value} |")
    return "\n".join(lines)
