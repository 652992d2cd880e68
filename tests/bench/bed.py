"""A Kubernetes to measure in, the control plane beside it, and what an administrator sees there."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from lightkube import Client, KubeConfig
from lightkube.generic_resource import create_global_resource
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from bench.marks import POOL, Document
from nodepool.contract.commands import MACHINES_MAX
from testbed.agent import declare
from testbed.cluster import Cluster, start_cluster
from testbed.kubelets import Kubelets
from testbed.plane import CLUSTER, H100, ORG, Plane, start_plane

NAME = "bench"
PATIENCE_S = 600.0
LOOK_S = 0.02
MANIFEST = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: {name}}}
spec: {{instanceType: {type}, targetNodes: {target}}}
"""

Check = Callable[[], bool]
NodePools = create_global_resource("compute.coreweave.com", "v1alpha1", "NodePool", "nodepools")


class Seen:
    """What an administrator sees and changes of NodePools, without the time that kubectl takes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._client = Client(config=KubeConfig.from_file(str(cluster.kubeconfig)))

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def scale(self, name: str, target: int) -> None:
        """Changes `spec.targetNodes`."""
        patch = {"spec": {"targetNodes": target}}
        self._client.patch(NodePools, name, patch, patch_type=PatchType.MERGE)

    def current(self, name: str) -> int | None:
        """The Nodes that its status shows; None without a status."""
        found = status_of(self._client.get(NodePools, name).status).get("currentNodes")
        return found if isinstance(found, int) else None

    def nodes(self, name: str) -> int:
        """How many Node objects it has."""
        return sum(1 for _ in self._client.list(Node, labels={POOL: name}, chunk_size=500))

    def is_checked(self, name: str) -> bool:
        """Whether its conditions are about its newest spec."""
        pool = self._client.get(NodePools, name)
        generation = pool.metadata.generation if pool.metadata else None
        conditions = status_of(pool.status).get("conditions", ())
        found = {each["type"]: each.get("observedGeneration") for each in conditions}
        return all(found.get(name) == generation for name in ("Validated", "Quota", "Capacity"))


def status_of(status: object) -> Document:
    """Return the status of an object as the mapping that it is; empty without a status."""
    return cast("Document", status or {})


@contextmanager
def bed() -> Iterator[tuple[Path, Cluster, Path]]:
    """A cluster to which the agent's part is declared, with the kubeconfig of its account."""
    with (
        tempfile.TemporaryDirectory(prefix="nodepool-bench-") as folder,
        start_cluster() as cluster,
    ):
        yield Path(folder), cluster, declare(cluster)


@contextmanager
def start_services(folder: Path, cluster: Cluster, machines: int) -> Iterator[Plane]:
    kubelets = cluster.folder / "kubelets.kubeconfig"
    (folder / "plane").mkdir()
    with start_plane(folder / "plane") as plane, Kubelets(plane.url, kubelets, ORG, CLUSTER):
        for first in range(0, machines, MACHINES_MAX):
            plane.stock(H100, min(MACHINES_MAX, machines - first), machines)
        yield plane


def apply(cluster: Cluster, name: str, target: int) -> None:
    given = MANIFEST.format(name=name, type=H100, target=target)
    cluster.kubectl("apply", "-f", "-", given=given)


def until(holds: Check, look_s: float = LOOK_S) -> None:
    ends, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not holds():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s")
        pause.wait(look_s)
