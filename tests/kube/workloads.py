"""What users run in a cluster, and the NodePools for it."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nodepool.client import Client
from nodepool.contract.messages import Command
from testbed.cluster import WITHIN_S, Cluster, Document, wait_until
from testbed.plane import H100, NODE_POOL, Plane, node_pool

INTERRUPTABLE = {"qos.coreweave.cloud/interruptable": "true"}
GRACEFUL = {"qos.coreweave.com/graceful-interruptible": "true"}
IGNORES_SIGTERM = {"kubelets/shutdown": "killed"}
"""The annotation of a Pod that runs to the end of its grace period."""
NOTHING: Mapping[str, str] = {}
PRODUCTION = "node.coreweave.cloud/state=production"


class Told(NamedTuple):
    """An Event: its reason, and its message."""

    reason: str
    message: str


class Workloads:
    """The NodePools and Pods of one module's tests, in one cluster."""

    def __init__(self, cluster: Cluster, plane: Plane) -> None:
        self.cluster, self.plane = cluster, plane
        self._pools: list[str] = []
        self._pods: list[tuple[str, str]] = []
        self._held: list[tuple[str, str]] = []

    def clean(self) -> None:
        """Deletes all of them, whatever runs."""
        for namespace, name in self._held:
            self.release(name, namespace)
        if self._pods:
            for namespace in {namespace for namespace, _ in self._pods}:
                names = [name for of, name in self._pods if of == namespace]
                now = ("--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
                self.cluster.run("delete", "pod", "-n", namespace, *names, *now)
        if self._pools:
            self.cluster.kubectl(
                "delete", "nodepool", *self._pools, "--ignore-not-found", "--timeout=50s"
            )
            of_them = f"{NODE_POOL} in ({', '.join(self._pools)})"
            wait_until(
                "their Nodes are gone",
                lambda: not self.cluster.objects("nodes", selector=of_them),
                WITHIN_S,
            )

    # NodePools and Nodes.

    def nodes(
        self, pool: str, count: int, instance_type: str = H100, **spec: object
    ) -> Sequence[str]:
        """The names of the Nodes of a new NodePool, once all of them are in production."""
        self.pool(pool, count, instance_type, **spec)
        wait_until(f"{pool} has {count} Nodes", lambda: len(self.found(pool)) == count, WITHIN_S)
        return self.found(pool)

    def pool(self, pool: str, count: int, instance_type: str = H100, **spec: object) -> None:
        """Applies a new NodePool as a user does."""
        self.manifest(node_pool(pool, instanceType=instance_type, targetNodes=count, **spec))

    def manifest(self, document: Document) -> None:
        """Applies the manifest of a new NodePool as a user does."""
        self._pools.append(document["metadata"]["name"])
        self.apply(document)

    def found(self, pool: str) -> Sequence[str]:
        """The Nodes of a NodePool that are in production in the cluster."""
        found = self.cluster.objects("nodes", selector=f"{NODE_POOL}={pool},{PRODUCTION}")
        return sorted(node["metadata"]["name"] for node in found)

    def scale(self, pool: str, count: int) -> None:
        """Changes the target of a NodePool with kubectl."""
        self.cluster.kubectl("scale", "nodepool", pool, f"--replicas={count}")

    def node(self, name: str) -> Document | None:
        """A Node of the cluster; None where there is none."""
        return self._get("node", name)

    def wait_until_gone(self, node: str) -> datetime:
        """When a Node was gone: from the bus, and from the cluster."""
        wait_until(f"{node} is gone", lambda: self.plane.node(node) is None, WITHIN_S)
        gone_at = datetime.now(UTC)
        wait_until(f"{node} is gone here, too", lambda: self.node(node) is None, WITHIN_S)
        return gone_at

    def is_drained(self, node: str) -> bool:
        """Whether the control plane drains a Node."""
        found = self.plane.node(node)
        status = found["status"] if found is not None else None
        return isinstance(status, Mapping) and "drain" in status

    def condition(self, node: str, type_: str) -> str:
        """A condition of a Node in the cluster, as `status: message`; empty where it has none."""
        found = self.node(node)
        conditions = found["status"].get("conditions", ()) if found else ()
        for each in conditions:
            if each["type"] == type_:
                return f"{each['status']}: {each.get('message', '')}"
        return ""

    def verdict(self, pool: str, type_: str) -> str:
        """A condition of a NodePool in the cluster, as `status reason: message`."""
        found = self._get("nodepool", pool)
        assert found is not None
        for each in found["status"].get("conditions", ()):
            if each["type"] == type_:
                return f"{each['status']} {each['reason']}: {each['message']}"
        return ""

    def wait_for_verdict(self, pool: str, type_: str, pattern: str) -> None:
        """Returns once a condition of a NodePool in the cluster is like this."""
        self._wait_for_text(pattern, lambda: self.verdict(pool, type_))

    def wait_for_condition(self, node: str, type_: str, pattern: str) -> None:
        """Returns once a condition of a Node in the cluster is like this."""
        self._wait_for_text(pattern, lambda: self.condition(node, type_))

    def _wait_for_text(self, pattern: str, text: Callable[[], str]) -> None:
        try:
            wait_until(pattern, lambda: re.fullmatch(pattern, text()) is not None, WITHIN_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {text()!r}") from None

    def warnings(self, kind: str, name: str, namespace: str = "default") -> Sequence[Told]:
        """What the Warning Events about an object say, in the order of their times."""
        selector = f"involvedObject.kind={kind},involvedObject.name={name},type=Warning"
        text = self.cluster.kubectl(
            "get", "events", "-n", namespace, "--field-selector", selector, "-o", "json"
        )
        events = sorted(json.loads(text)["items"], key=lambda event: str(event["firstTimestamp"]))
        return [Told(event["reason"], event["message"]) for event in events]

    def send(self, kind: type[Command], pool: str, **fields: object) -> None:
        """Sends a command about a NodePool or one of its Nodes on the bus."""

        async def work(client: Client) -> None:
            await client.commands.send(
                kind.model_validate({**client.commands.fields_of(pool), **fields})
            )

        self.plane.do(work)

    # Pods.

    def create(
        self,
        name: str,
        node: str = "",
        *,
        namespace: str = "default",
        labels: Mapping[str, str] = NOTHING,
        annotations: Mapping[str, str] = NOTHING,
        finalizers: Sequence[str] = (),
        container: Document | None = None,
        **spec: Any,
    ) -> None:
        """Creates a Pod as a user does; the scheduler is to place it on this Node, if one is given.

        container: fields of its only container.
        """
        if node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        self._pods.append((namespace, name))
        if finalizers:
            self._held.append((namespace, name))
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": {"app": name, **labels},
                    "annotations": dict(annotations),
                    "finalizers": list(finalizers),
                },
                "spec": {"containers": [{"name": "only", "image": "none", **(container or {})}]}
                | spec,
            }
        )

    def run(self, name: str, node: str = "", **fields: Any) -> None:
        """Creates a Pod, and returns once it runs."""
        self.create(name, node, **fields)
        self.wait_until_running(name, fields.get("namespace", "default"))

    def wait_until_running(self, name: str, namespace: str = "default") -> str:
        """Returns the name of the Node on which a Pod runs, once it does."""
        is_running = lambda: self.phase(name, namespace) == "Running"  # noqa: E731
        wait_until(f"{name} runs", is_running, WITHIN_S)
        found = self.pod(name, namespace)
        assert found is not None
        return str(found["spec"]["nodeName"])

    def pod(self, name: str, namespace: str = "default") -> Document | None:
        """A Pod; None where there is none."""
        return self._get("pod", name, "-n", namespace)

    def is_unschedulable(self, name: str, namespace: str = "default") -> bool:
        """Whether the scheduler says that a Pod fits on no Node."""
        found = self.pod(name, namespace)
        conditions = found["status"].get("conditions", ()) if found else ()
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    def wait_until_unschedulable(self, name: str, namespace: str = "default") -> None:
        """Returns once the scheduler says that a Pod fits on no Node."""
        wait_until(f"{name} waits", lambda: self.is_unschedulable(name, namespace), WITHIN_S)

    def phase(self, name: str, namespace: str = "default") -> str:
        """The phase of a Pod; empty where there is none."""
        found = self.pod(name, namespace)
        return "" if found is None else str(found["status"]["phase"])

    def is_terminating(self, name: str, namespace: str = "default") -> bool:
        """Whether a Pod is in its grace period."""
        found = self.pod(name, namespace)
        return found is not None and "deletionTimestamp" in found["metadata"]

    def wait_until_terminating(self, name: str, namespace: str = "default") -> tuple[int, datetime]:
        """The grace period of a Pod in seconds, and when it ends, once it has begun."""
        ends = lambda: self.is_terminating(name, namespace)  # noqa: E731
        wait_until(f"{name} is to end", ends, WITHIN_S)
        found = self.pod(name, namespace)
        assert found is not None
        metadata = found["metadata"]
        return metadata["deletionGracePeriodSeconds"], datetime.fromisoformat(
            metadata["deletionTimestamp"]
        )

    def wait_until_ended(self, name: str, namespace: str = "default") -> None:
        """Returns once there is no such Pod."""
        wait_until(f"{name} is gone", lambda: self.pod(name, namespace) is None, WITHIN_S)

    def delete(self, name: str, namespace: str = "default") -> None:
        """Deletes a Pod as a user does."""
        self.cluster.kubectl("delete", "pod", name, "-n", namespace, "--wait=false")

    def kill(self, name: str, namespace: str = "default") -> None:
        """Deletes a Pod at once, whatever runs."""
        now = ("--grace-period=0", "--force", "--wait=false")
        self.cluster.kubectl("delete", "pod", name, "-n", namespace, *now)

    def release(self, name: str, namespace: str = "default") -> None:
        """Takes the finalizers of a Pod away."""
        patch = '{"metadata": {"finalizers": null}}'
        self.cluster.run("patch", "pod", name, "-n", namespace, "--type=merge", "-p", patch)

    def budget(self, name: str, app: str, available: int, namespace: str = "default") -> None:
        """Applies a PodDisruptionBudget: so many of the Pods of an app are always to run."""
        self.apply(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"minAvailable": available, "selector": {"matchLabels": {"app": app}}},
            }
        )

        def is_known() -> bool:
            found = self._get("poddisruptionbudget", name, "-n", namespace)
            return bool(found and found.get("status", {}).get("expectedPods"))

        wait_until(f"{name} is heeded", is_known, WITHIN_S)

    def apply(self, document: Document) -> str:
        """Applies a manifest as a user does; what kubectl prints."""
        done = self.cluster.run(
            "apply", "-f", "-", given=json.dumps(document), kubeconfig=self.cluster.user_kubeconfig
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _get(self, *arguments: str) -> Document | None:
        text = self.cluster.kubectl("get", *arguments, "--ignore-not-found", "-o", "json")
        found: Document | None = json.loads(text) if text else None
        return found
