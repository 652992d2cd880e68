"""Karpenter with its provider for kwok, which `karpenter.sh` builds, and a NodePool of its own."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lightkube import Client, KubeConfig
from lightkube.generic_resource import create_global_resource
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from bench.bed import NAME, status_of, until
from bench.marks import Document
from testbed.cluster import Cluster
from testbed.components import CACHE
from testbed.ports import free_port

FOLDER: Final = CACHE.parent / "karpenter"
PROGRAM: Final = FOLDER / "kwok"
POOL: Final = "karpenter.sh/nodepool"
INITIALIZED: Final = "karpenter.sh/initialized"
"""The label that a Node has once its taints, its labels and its resources are all there."""
LOOK_S: Final = 0.2
"""The pause between two lists of all Nodes, which cost the API server as much as they do."""
MANIFEST: Final = f"""\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {NAME}}}
spec:
  replicas: 0
  template:
    spec:
      requirements:
        - {{key: node.kubernetes.io/instance-type, operator: In, values: [c-1x-amd64-linux]}}
        - {{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}
      nodeClassRef: {{name: default, kind: KWOKNodeClass, group: karpenter.kwok.sh}}
      expireAfter: Never
---
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {{name: default}}
"""
Pools = create_global_resource("karpenter.sh", "v1", "NodePool", "nodepools")


def declare(cluster: Cluster) -> None:
    """Apply the types of Karpenter to a cluster."""
    cluster.kubectl("apply", "--server-side", "-f", str(FOLDER / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


def environment(kubeconfig: Path) -> Mapping[str, str]:
    """Return how Karpenter is to run: alone, and with NodePools of a fixed size."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(kubeconfig.parent),
        "KUBECONFIG": str(kubeconfig),
        "SYSTEM_NAMESPACE": "kube-system",
        "DISABLE_LEADER_ELECTION": "true",
        "FEATURE_GATES": "StaticCapacity=true",
        "METRICS_PORT": str(free_port()),
        "HEALTH_PROBE_PORT": str(free_port()),
    }


class StaticPool:
    """A NodePool of Karpenter's with `spec.replicas`."""

    selector = f"{POOL}={NAME}"

    def __init__(self, cluster: Cluster) -> None:
        self._client = Client(config=KubeConfig.from_file(str(cluster.kubeconfig)))
        cluster.kubectl("apply", "-f", "-", given=MANIFEST)
        until(self._is_ready)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def scale(self, target: int) -> None:
        """Change `spec.replicas`."""
        patch = {"spec": {"replicas": target}}
        self._client.patch(Pools, NAME, patch, patch_type=PatchType.MERGE)

    def is_at(self, target: int) -> bool:
        """Return whether its status and the cluster have so many Nodes, all of them initialized."""
        if self._status().get("nodes") != target:
            return False
        nodes = list(self._client.list(Node, labels={POOL: NAME}, chunk_size=500))
        labels = [(node.metadata and node.metadata.labels) or {} for node in nodes]
        if len(nodes) == target and all(INITIALIZED in each for each in labels):
            return True
        threading.Event().wait(LOOK_S)
        return False

    def _is_ready(self) -> bool:
        conditions = self._status().get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _status(self) -> Document:
        return status_of(self._client.get(Pools, NAME).status)
