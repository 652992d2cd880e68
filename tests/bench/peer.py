"""A plain operator for the same NodePool objects, made with kopf; the agent is measured beside it.

It has no quota, no capacity, no health and no drain: it makes as many Nodes as are wanted, and
counts those that are ready. Run as `python -m bench.peer KUBECONFIG`.
"""

import asyncio
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import kopf
from lightkube import AsyncClient, KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource
from lightkube.models.core_v1 import NodeSpec, Taint
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

GROUP: Final = ("compute.coreweave.com", "v1alpha1", "nodepools")
POOL: Final = "compute.coreweave.com/node-pool"
AT_ONCE: Final = 16
"""How many requests are under way at a time, as many as the agent has."""
STATUS_S: Final = 0.2
"""How often the status of a NodePool is brought up to date at most."""
NOT_FOUND, EXISTS = 404, 409

NodePools = create_global_resource("compute.coreweave.com", "v1alpha1", "NodePool", "nodepools")
Ready = MutableMapping[str, bool]
"""Whether each Node of a NodePool is ready, by its name."""


class Fleet:
    """What the operator knows: the Nodes of each NodePool, and those whose count changed."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.nodes: dict[str, dict[str, bool]] = {}
        self.changed: dict[str, bool] = {}
        self.at_once = asyncio.Semaphore(AT_ONCE)

    async def resize(self, pool: str, uid: str, instance_type: str, target: int) -> None:
        """Makes the Nodes that are missing, and deletes those that are too many."""
        wanted = {f"{pool}-{number:05}" for number in range(target)}
        there = set(self.nodes.get(pool, ()))
        making = (self._make(name, pool, uid, instance_type) for name in sorted(wanted - there))
        deleting = (self._delete(name) for name in sorted(there - wanted))
        await asyncio.gather(*making, *deleting)

    async def _make(self, name: str, pool: str, uid: str, instance_type: str) -> None:
        labels = {
            POOL: pool,
            f"{POOL}-uid": uid,
            "node.kubernetes.io/instance-type": instance_type,
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
        }
        metadata = ObjectMeta(name=name, labels=labels, annotations={"kwok.x-k8s.io/node": "fake"})
        taints = [Taint(key="is_gpu", value="true", effect="PreferNoSchedule")]
        async with self.at_once:
            try:
                await self.client.create(Node(metadata=metadata, spec=NodeSpec(taints=taints)))
            except ApiError as error:
                if error.status.code != EXISTS:
                    raise

    async def _delete(self, name: str) -> None:
        async with self.at_once:
            try:
                await self.client.delete(Node, name)
            except ApiError as error:
                if error.status.code != NOT_FOUND:
                    raise

    async def publish(self) -> None:
        """Keeps the status of each NodePool in step with its Nodes, until it is cancelled."""
        while True:
            await asyncio.sleep(STATUS_S)
            changed, self.changed = self.changed, {}
            await asyncio.gather(*map(self._publish, changed))

    async def _publish(self, pool: str) -> None:
        nodes = self.nodes.get(pool, {})
        status = {
            "currentNodes": sum(nodes.values()),
            "inProgress": len(nodes) - sum(nodes.values()),
        }
        try:
            await self.client.patch(
                NodePools.Status, pool, {"status": status}, patch_type=PatchType.MERGE
            )
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise


def registered(fleet: Fleet, account: SingleConfig) -> kopf.OperatorRegistry:
    """The handlers of the operator."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        user = account.user
        token = user.token if user is not None else None
        return kopf.ConnectionInfo(server=account.cluster.server, insecure=True, token=token)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        # It keeps nothing of its own on the objects, and records no Events: the fewest requests.
        settings.posting.enabled = False
        settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.kopf")
        settings.peering.standalone = True

    @kopf.on.resume(*GROUP, registry=registry)
    @kopf.on.create(*GROUP, registry=registry)
    @kopf.on.update(*GROUP, field="spec", registry=registry)
    async def resize(name: str, uid: str, spec: Mapping[str, Any], **_: Any) -> None:
        fleet.changed[name] = True
        await fleet.resize(name, uid, spec["instanceType"], spec["targetNodes"])

    @kopf.on.event("", "v1", "nodes", labels={POOL: kopf.PRESENT}, registry=registry)
    def count(event: Mapping[str, Any], body: Mapping[str, Any], name: str, **_: Any) -> None:
        pool = body["metadata"]["labels"][POOL]
        nodes = fleet.nodes.setdefault(pool, {})
        conditions = body.get("status", {}).get("conditions", ())
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        if event["type"] == "DELETED":
            nodes.pop(name, None)
        elif nodes.get(name) == ready:
            return
        else:
            nodes[name] = ready
        fleet.changed[pool] = True

    return registry


async def run(kubeconfig: str) -> None:
    """Runs the operator until it is stopped."""
    account = KubeConfig.from_file(kubeconfig).get()
    assert account is not None, f"{kubeconfig} has no current context"
    client = AsyncClient(config=account)
    fleet = Fleet(client)
    publishing = asyncio.create_task(fleet.publish())
    try:
        await kopf.operator(registry=registered(fleet, account), standalone=True, clusterwide=True)
    finally:
        publishing.cancel()
        await client.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
