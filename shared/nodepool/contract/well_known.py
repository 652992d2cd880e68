"""The labels, annotations and taints of Nodes that kubelets and controllers of Kubernetes set.

They set them back, so that nobody else can. See
https://kubernetes.io/docs/reference/labels-annotations-taints/.
"""

from typing import Final

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
