"""The control plane beside a cluster: the bus and every service, and what people do on the bus."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from nodepool.client import Client, Document
from nodepool.contract.commands import AddMachines
from nodepool.contract.model import API_VERSION
from testbed.cluster import WITHIN_S
from testbed.processes import ControlPlane

T = TypeVar("T")
ORG, CLUSTER, ZONE = "demo", "kube", "US-EAST-04A"
H100, A100, CPU = "gd-8xh100ib-i128", "gd-8xa100-i128", "cd-gp-i64-erapids"
SETTINGS: Mapping[str, str] = {
    # Silent Nodes are unhealthy soon, and later than any Node that only looks silent for a moment.
    "NODEPOOL_UNHEALTHY_SECONDS": "30",
    # The base declares the hash of another organisation; test_reserved_taint.py sets both.
    "NODEPOOL_RESERVED_TAINT": "off",
}
"""The settings of the services that serve the cluster, unless a test has its own settings."""
NODE_POOL = "compute.coreweave.com/node-pool"


class Plane:
    """The control plane, and commands to it on behalf of the cluster that the tests run in.

    processes: the nats-server and the services.
    """

    def __init__(self, processes: ControlPlane, cluster: str = CLUSTER) -> None:
        self.processes = processes
        self.cluster = cluster

    @property
    def url(self) -> str:
        """The address of the bus."""
        return self.processes.server.url

    def do(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Run `work` with a client of the control plane, and return its result."""

        async def connect_and_work() -> T:
            async with Client(
                self.url,
                org=ORG,
                cluster=self.cluster,
                timeout_s=WITHIN_S,
                access=self.processes.access(),
            ) as client:
                return await work(client)

        return asyncio.run(connect_and_work())

    def stock(
        self, instance_type: str, count: int, quota: int, boot_s: float = 0, verify_s: float = 0
    ) -> None:
        """Add free machines to the zone, and set the quota of their type."""

        async def work(client: Client) -> None:
            await client.quotas.set(ZONE, instance_type, quota)
            await client.commands.send(
                AddMachines(
                    zone=ZONE,
                    instance_type=instance_type,
                    count=count,
                    boot_seconds=boot_s,
                    verify_seconds=verify_s,
                )
            )

        self.do(work)

    def apply(self, pool: str, **spec: object) -> None:
        """Apply the manifest of a NodePool, as a command on the bus."""
        self.do(lambda client: client.nodepools.apply(node_pool(pool, **spec)))

    def pool(self, name: str) -> Document | None:
        """Return a NodePool of the read model, or None if there is no such NodePool."""
        return self.do(lambda client: client.nodepools.get(name))

    def target(self, pool: str) -> object:
        """Return the target of a NodePool in the read model, or None without such a NodePool."""
        found = self.pool(pool)
        spec = found["spec"] if found is not None else None
        return spec["targetNodes"] if isinstance(spec, Mapping) else None

    def node(self, name: str) -> Document | None:
        """Return a Node of the read model, or None if there is no such Node."""
        return self.do(lambda client: client.nodes.get(name))

    def nodes(self, pool: str) -> Mapping[str, Document]:
        """Return the Nodes of a NodePool in the read model, by name."""
        found = self.do(lambda client: client.nodes.list())
        documents = {each.key: each.document for each in found if each.document is not None}
        return {name: item for name, item in documents.items() if _pool_of(item) == pool}

    def wait(self, pool: str, condition: str = "AtTarget") -> None:
        """Wait until a condition of a NodePool is True on the bus; raise if that takes too long."""
        self.do(lambda client: client.nodepools.wait(pool, condition, timeout_s=WITHIN_S))


def node_pool(name: str, **spec: object) -> Mapping[str, object]:
    """Return a NodePool as a manifest has it, with one Node unless `spec` says otherwise."""
    return {
        "apiVersion": API_VERSION,
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"instanceType": H100, "targetNodes": 1, **spec},
    }


def _pool_of(node: Document) -> object:
    metadata = node["metadata"]
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels.get(NODE_POOL) if isinstance(labels, dict) else None


@contextmanager
def start_plane(
    folder: Path,
    cluster: str = CLUSTER,
    *,
    kubernetes: bool = True,
    settings: Mapping[str, str] = SETTINGS,
) -> Iterator[Plane]:
    """Yield a control plane whose cluster is registered, without machines."""
    with ControlPlane(folder, settings=settings) as processes:
        plane = Plane(processes, cluster)
        plane.do(lambda client: client.clusters.register(cluster, ZONE, kubernetes=kubernetes))
        yield plane
