"""A cluster of Kubernetes in memory: Nodes, Pods, budgets, and the requests of an agent to it."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.actions import Action, Create, Delete, Evict, ListPods, Patch, RecordEvent, Report, Send
from agent.nodes.objects import NodeObject, node_object
from agent.pods.objects import PodObject, pod_object
from nodepool.contract.events import NodeReported

if TYPE_CHECKING:
    from nodepool.contract.messages import Command

Json = dict[str, Any]


class Conflict(Exception):
    """The object was changed since it was read."""


class Refused(Exception):
    """The API server refuses what is asked, and would refuse it again."""


class MemoryCluster:
    """Nodes and Pods as an API server keeps them; Pods end when `pass_grace` is called.

    budgets: why the eviction of a Pod is refused, by its name with its namespace.
    hanging: the Pods that a finalizer holds.
    sent, reported, told: the commands by id, the events, and the Events by their key.
    refused: the evictions that a budget has refused, by Pod.
    proven: the key of the last list of the Pods of a Node, by Node.
    before_list: called with the Node right before its Pods are listed.
    refuses: whether a patch is refused for what it asks.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.budgets: dict[str, str] = {}
        self.hanging: set[str] = set()
        self.sent: dict[str, Command] = {}
        self.reported: list[object] = []
        self.recorded: dict[tuple[str, str, str], RecordEvent] = {}
        self.refused: dict[str, str] = {}
        self.proven: dict[str, str] = {}
        self.before_list: Callable[[str], None] = lambda _node: None
        self.refuses: Callable[[Patch], bool] = lambda _patch: False
        self.version = 0

    def add_node(self, name: str, **metadata: object) -> Json:
        """A Node whose kubelet has registered it, and is ready."""
        document: Json = {
            "metadata": {"name": name, **metadata},
            "spec": {"taints": [{"key": "node.coreweave.cloud/reserved", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        return self._stored(document)

    def touch(self, name: str) -> None:
        """Somebody has changed a Node."""
        self.version += 1
        self.nodes[name]["metadata"]["resourceVersion"] = str(self.version)

    def add_pod(self, name: str, node: str, **labels: str) -> Json:
        """A Pod that runs on a Node, in the namespace `default`."""
        document: Json = {
            "metadata": {"namespace": "default", "name": name, "uid": self._uid("pod")},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running"},
        }
        document["metadata"]["labels"] = {key.replace("__", "/"): v for key, v in labels.items()}
        self.pods[f"default/{name}"] = document
        return document

    def node(self, name: str) -> NodeObject | None:
        """A Node as the agent reads it."""
        document = self.nodes.get(name)
        return None if document is None else node_object(document)

    def pods_of(self, name: str) -> list[PodObject]:
        """The Pods of a Node as the agent reads them."""
        found = [pod for each in self.pods.values() if (pod := pod_object(each)) is not None]
        return [
            replace(pod, blocked_by=self.refused.get(pod.pod.name, ""))
            for pod in found
            if pod.node == name
        ]

    def carry_out(self, action: Action) -> None:
        """One request of an agent; Conflict where its precondition does not hold, or Refused."""
        match action:
            case Send() | Report() | RecordEvent():
                self._record(action)
            case ListPods(node=node, key=key):
                self.before_list(node)
                self.proven[node] = key
            case Create(document=document):
                self._create(document)
            case Patch():
                self._patch(action)
            case Delete(kind="Node", name=name, uid=uid):
                self._delete_node(name, uid)
            case Delete(namespace=namespace, name=name, uid=uid, grace_s=grace_s):
                self._end(f"{namespace}/{name}", uid, grace_s)
            case Evict():
                self._evict(action)

    def pass_grace(self) -> None:
        """Every grace period ends; a Pod that a finalizer holds stays."""
        for key, pod in list(self.pods.items()):
            if "deletionTimestamp" in pod["metadata"] and key not in self.hanging:
                del self.pods[key]

    def last_report(self, node: str) -> NodeReported:
        """The last NodeReported of a Node."""
        said = [e for e in self.reported if isinstance(e, NodeReported) and e.node == node]
        return said[-1]

    def _record(self, action: Send | Report | RecordEvent) -> None:
        match action:
            case Send(id=id, command=command):
                self.sent.setdefault(id, command)
            case Report(event=event):
                self.reported.append(event)
            case RecordEvent(kind=kind, uid=uid, key=key):
                self.recorded.setdefault((kind, uid, key), action)

    def _create(self, document: Mapping[str, Any]) -> None:
        if document["metadata"]["name"] not in self.nodes:
            self._stored(deepcopy(dict(document)))

    def _delete_node(self, name: str, uid: str) -> None:
        if name in self.nodes and self.nodes[name]["metadata"]["uid"] == uid:
            del self.nodes[name]

    def _evict(self, action: Evict) -> None:
        key = f"{action.namespace}/{action.name}"
        if key in self.budgets:
            self.refused[key] = self.budgets[key]
        else:
            self.refused.pop(key, None)
            self._end(key, action.uid, None)

    def _uid(self, kind: str) -> str:
        self.version += 1
        return f"{kind}-{self.version}"

    def _stored(self, document: Json) -> Json:
        metadata = document["metadata"]
        metadata.setdefault("uid", self._uid("node"))
        metadata["resourceVersion"] = str(self.version)
        self.nodes[metadata["name"]] = document
        return document

    def _patch(self, action: Patch) -> None:
        document = self.nodes.get(action.name)
        if document is None:
            return
        patch = deepcopy(dict(action.patch))
        version = patch.get("metadata", {}).get("resourceVersion")  # type: ignore[attr-defined]
        uid = patch.get("metadata", {}).get("uid", document["metadata"]["uid"])  # type: ignore[attr-defined]
        if version not in (None, document["metadata"]["resourceVersion"]):
            raise Conflict(action.name)
        if uid != document["metadata"]["uid"]:
            raise Conflict(action.name)
        if self.refuses(action):
            raise Refused(action.name)
        if action.subresource == "status":
            status = document.setdefault("status", {})
            status["conditions"] = _merged_by_type(
                status.get("conditions", []),
                patch["status"]["conditions"],  # type: ignore[index]
            )
        else:
            _merge(document, patch)
        self.touch(action.name)

    def _end(self, key: str, uid: str, grace_s: int | None) -> None:
        pod = self.pods.get(key)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        pod["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        if grace_s is not None:
            pod["metadata"]["deletionGracePeriodSeconds"] = grace_s
        if grace_s == 0 and key not in self.hanging:
            del self.pods[key]


def _merge(target: Json, patch: Mapping[str, Any]) -> None:
    """A JSON merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            _merge(target[key], value)
        else:
            target[key] = value


def _merged_by_type(found: list[Json], patch: list[Json]) -> list[Json]:
    """A strategic merge patch of a list whose merge key is `type`."""
    after = {each["type"]: dict(each) for each in found}
    for each in patch:
        if each.get("$patch") == "delete":
            after.pop(each["type"], None)
        else:
            after[each["type"]] = {**after.get(each["type"], {}), **each}
    return list(after.values())
