"""The labels, annotations and taints of Nodes that a NodePool cannot ask for.

Kubelets and controllers of Kubernetes set most of them, and set them back, so that nobody else can.
See https://kubernetes.io/docs/reference/labels-annotations-taints/.
"""

from typing import Final

from nodepool.contract.cordons import CORDON_REASON
from nodepool.contract.model import LOCK

LABELS: Final = (
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/windows-build",
)
ANNOTATIONS: Final = (
    "csi.volume.kubernetes.io/nodeid",
    "node.alpha.kubernetes.io/ttl",
    "volumes.kubernetes.io/controller-managed-attach-detach",
)
TAINTS: Final = (
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
)
"""Their keys; a taint is theirs with any effect."""
SET_BY_KUBERNETES: Final = (
    "Kubernetes sets it itself (Kubernetes: Well-Known Labels, Annotations and Taints)"
)
"""Why one cannot be asked for."""
OWNED_LABELS: Final = ("node.kubernetes.io/instance-type", "node.kubernetes.io/type")
OWNED_PREFIXES: Final = ("topology.kubernetes.io/",)
"""The keys of the labels that the control plane sets on Nodes, and what further keys begin with."""
MANAGED: Final = "compute.coreweave.com/managed"
"""The annotation of a Node in Kubernetes that remembers what the control plane owns of it."""
OWNED_ANNOTATIONS: Final = (CORDON_REASON, LOCK, MANAGED)
"""The keys of the annotations that the control plane sets on Nodes."""
SET_BY_CONTROL_PLANE: Final = "the control plane sets it where it belongs"
GRANTING_LABELS: Final = ("kubernetes.io/role",)
GRANTING_DOMAINS: Final = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
"""The labels by which a cluster trusts Nodes, and the domains of such labels, subdomains included.

See https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction.
"""
GRANTS_RIGHTS: Final = "by it a cluster trusts Nodes with rights, which a NodePool cannot grant"


def refused_label(key: str) -> str:
    """Return why a NodePool cannot ask for a label of its Nodes; empty if it can."""
    if key in LABELS:
        return SET_BY_KUBERNETES
    if key in OWNED_LABELS or key.startswith(OWNED_PREFIXES):
        return SET_BY_CONTROL_PLANE
    domain = key.partition("/")[0]
    is_granting = any(domain == each or domain.endswith(f".{each}") for each in GRANTING_DOMAINS)
    return GRANTS_RIGHTS if is_granting or key in GRANTING_LABELS else ""


def refused_annotation(key: str) -> str:
    """Return why a NodePool cannot ask for an annotation of its Nodes; empty if it can."""
    if key in ANNOTATIONS:
        return SET_BY_KUBERNETES
    return SET_BY_CONTROL_PLANE if key in OWNED_ANNOTATIONS else ""
