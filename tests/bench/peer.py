"""A plain operator for the same NodePool objects, made with kopf; the agent is measured beside it.

It has no quota, no capacity, no health and no drain: it makes as many Nodes as are wanted, and
counts those that are ready. Run as `python -m bench.peer KUBECONFIG`. With `fair` as a second
argument it also writes what the agent writes: the labels, taints, conditions and the Event of each
Node, the cordon of a Node that leaves, and the conditions and Events of the NodePool.
"""

import asyncio
import sys
from typing import Final, NamedTuple

import httpx2
import kopf
from lightkube import AsyncClient, KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource
from lightkube.models.core_v1 import NodeSpec, Taint
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, NodeStatus
from lightkube.types import PatchType

from bench import marks
from bench.marks import POOL, STATE, TYPE, Document

GROUP: Final = ("compute.coreweave.com", "v1alpha1", "nodepools")
FAIR: Final = "fair"
AT_ONCE: Final = 16
"""How many requests are under way at a time, as many as the agent has."""
STATUS_S: Final = 0.2
"""How often the status of a NodePool is brought up to date at most."""
RETRY_S: Final = 1.0
"""How long the operator waits after a failure before it tries again."""
NOT_FOUND, EXISTS = 404, 409

NodePools = create_global_resource("compute.coreweave.com", "v1alpha1", "NodePool", "nodepools")


class Spec(NamedTuple):
    """What the operator knows of a NodePool object."""

    name: str
    uid: str
    generation: int
    instance_type: str
    target: int


class Fleet:
    """What the operator knows: the Nodes of each NodePool, and those whose count changed.

    is_fair: whether it writes what the agent writes.
    """

    def __init__(self, client: AsyncClient, *, is_fair: bool) -> None:
        self.client, self.is_fair = client, is_fair
        self.specs: dict[str, Spec] = {}
        self.nodes: dict[str, dict[str, bool]] = {}
        self.changed: dict[str, bool] = {}
        self.at_once = asyncio.Semaphore(AT_ONCE)
        self._since: dict[str, tuple[bool, str]] = {}

    async def resize(self, pool: Spec) -> None:
        """Makes the Nodes that are missing, and deletes those that are too many."""
        wanted = {f"{pool.name}-{number:05}" for number in range(pool.target)}
        there = set(self.nodes.get(pool.name, ()))
        making = (self._make(name, pool) for name in sorted(wanted - there))
        deleting = (self._delete(name) for name in sorted(there - wanted))
        await asyncio.gather(*making, *deleting)

    async def _make(self, name: str, pool: Spec) -> None:
        labels = {**marks.kubelet_labels(name), POOL: pool.name}
        if not self.is_fair:
            labels |= {f"{POOL}-uid": pool.uid, TYPE: pool.instance_type}
        taint = marks.STARTUP_TAINT if self.is_fair else marks.TAINT
        metadata = ObjectMeta(name=name, labels=labels)
        async with self.at_once:
            try:
                spec = NodeSpec(taints=[Taint(taint["effect"], taint["key"], value=taint["value"])])
                await self.client.create(Node(metadata=metadata, spec=spec))
            except ApiError as error:
                if error.status.code != EXISTS:
                    raise

    async def _delete(self, name: str) -> None:
        async with self.at_once:
            try:
                if self.is_fair:
                    cordon = {"spec": {"unschedulable": True}}
                    await self.client.patch(Node, name, cordon, patch_type=PatchType.MERGE)
                    await self.show(name, marks.leaving(name))
                await self.client.delete(Node, name)
            except ApiError as error:
                if error.status.code != NOT_FOUND:
                    raise

    async def show(self, name: str, status: Document) -> None:
        """Sets conditions of a Node; a merge patch would take those of its kubelet away."""
        await self.client.patch(NodeStatus, name, dict(status), patch_type=PatchType.STRATEGIC)

    async def publish(self) -> None:
        """Keeps the status of each NodePool in step with its Nodes, until it is cancelled."""
        while True:
            await asyncio.sleep(STATUS_S)
            changed, self.changed = self.changed, {}
            await asyncio.gather(*map(self._publish, changed))

    async def _publish(self, pool: str) -> None:
        nodes = self.nodes.get(pool, {})
        total, current = len(nodes), sum(nodes.values())
        status: Document = {"status": {"currentNodes": current, "inProgress": total - current}}
        if self.is_fair and pool in self.specs:
            spec = self.specs[pool]
            is_met = current == total == spec.target
            if self._since.get(pool, (not is_met, ""))[0] is not is_met:
                self._since[pool] = is_met, marks.moment()
            since = self._since[pool][1]
            status = marks.pool_status(
                spec.generation, spec.instance_type, spec.target, total, current, since
            )
        try:
            await self.client.patch(
                NodePools.Status, pool, dict(status), patch_type=PatchType.MERGE
            )
        except (ApiError, httpx2.TransportError) as error:
            if not isinstance(error, ApiError) or error.status.code != NOT_FOUND:
                self.changed[pool] = True  # The next round tries again.


def registered(fleet: Fleet, account: SingleConfig) -> kopf.OperatorRegistry:
    """The handlers of the operator."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: object) -> kopf.ConnectionInfo:
        user = account.user
        token = user.token if user is not None else None
        return kopf.ConnectionInfo(server=account.cluster.server, insecure=True, token=token)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        # It keeps nothing of its own on the objects; the plain one records no Events either.
        settings.posting.enabled = fleet.is_fair
        settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.kopf")
        settings.peering.standalone = True

    @kopf.on.resume(*GROUP, backoff=RETRY_S, registry=registry)
    @kopf.on.create(*GROUP, backoff=RETRY_S, registry=registry)
    @kopf.on.update(*GROUP, field="spec", backoff=RETRY_S, registry=registry)
    async def resize(name: str, body: kopf.Body, spec: kopf.Spec, **_: object) -> None:
        metadata = body["metadata"]
        found = metadata["uid"], metadata["generation"], spec["instanceType"], spec["targetNodes"]
        pool = fleet.specs[name] = Spec(name, *found)
        fleet.changed[name] = True
        if fleet.is_fair:
            _record_resize(body, pool, len(fleet.nodes.get(name, ())))
        await fleet.resize(pool)

    @kopf.on.event("", "v1", "nodes", labels={POOL: kopf.PRESENT}, registry=registry)
    def count(event: Document, body: kopf.Body, name: str, **_: object) -> None:
        pool = body["metadata"]["labels"][POOL]
        nodes = fleet.nodes.setdefault(pool, {})
        is_ready = _has(body, "Ready")
        if fleet.is_fair:
            is_ready = is_ready and _has(body, "CWRegistered") and _is_marked(body)
        if event["type"] == "DELETED":
            nodes.pop(name, None)
        elif nodes.get(name) == is_ready:
            return
        else:
            nodes[name] = is_ready
        fleet.changed[pool] = True

    if fleet.is_fair:
        _register_join(fleet, registry)
    return registry


def _register_join(fleet: Fleet, registry: kopf.OperatorRegistry) -> None:
    @kopf.on.event("", "v1", "nodes", labels={POOL: kopf.PRESENT}, registry=registry)
    async def join(
        body: kopf.Body, name: str, patch: kopf.Patch, memo: kopf.Memo, **_: object
    ) -> None:
        """Marks a Node that is ready: a patch, which kopf sends, a status, and an Event."""
        pool = fleet.specs.get(body["metadata"]["labels"][POOL])
        if memo.get("joined") or pool is None or _is_marked(body) or not _has(body, "Ready"):
            return
        patch.metadata.labels.update(marks.node_labels(pool.name, pool.uid, pool.instance_type))
        patch.spec["taints"] = marks.node_taints(body["spec"].get("taints", ()))
        async with fleet.at_once:
            await fleet.show(name, marks.joined(name))
        memo.joined = True  # If the status was not written, the next event of the Node tries again.
        kopf.event(
            body, type="Normal", reason="CWNodeRegistered", message=f"Node {name} is registered"
        )


def _record_resize(body: kopf.Body, pool: Spec, before: int) -> None:
    if pool.target == before:
        return
    values = {
        "pool": pool.name,
        "before": before,
        "target": pool.target,
        "changed": abs(pool.target - before),
    }
    for reason, message in marks.UP if pool.target > before else marks.DOWN:
        kopf.event(body, type="Normal", reason=reason, message=message.format(**values))


def _has(body: kopf.Body, type_: str) -> bool:
    """Return whether a condition of a Node is True."""
    conditions: list[Document] = body.get("status", {}).get("conditions", [])
    return any(each["type"] == type_ and each["status"] == "True" for each in conditions)


def _is_marked(body: kopf.Body) -> bool:
    return STATE in body["metadata"]["labels"]


async def run(kubeconfig: str, *, is_fair: bool) -> None:
    """Runs the operator until it is stopped."""
    account = KubeConfig.from_file(kubeconfig).get()
    assert account is not None, f"{kubeconfig} has no current context"
    client = AsyncClient(config=account)
    fleet = Fleet(client, is_fair=is_fair)
    try:
        async with asyncio.TaskGroup() as group:  # If the publishing fails, the operator ends.
            publishing = group.create_task(fleet.publish())
            registry = registered(fleet, account)
            await kopf.operator(registry=registry, standalone=True, clusterwide=True)
            publishing.cancel()
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], is_fair=FAIR in sys.argv[2:]))
