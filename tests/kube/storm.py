"""What people do in a cluster and on the bus while its parts are killed, drawn from a seed."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nodepool.client import ClientError
from nodepool.contract.commands import CordonNode, DrainNode, UncordonNode
from testbed.cluster import Cluster
from testbed.plane import Plane, node_pool

POOLS_MAX, TARGET_MAX = 6, 3
NOTE = "note"
"""The annotation of Nodes that people on both sides set to values of their own in the spec."""
ACTIONS: Mapping[str, int] = {
    "create": 3,
    "create_on_bus": 2,
    "delete": 1,
    "delete_on_bus": 1,
    "scale": 6,
    "scale_on_bus": 6,
    "label": 6,
    "note": 5,
    "note_on_bus": 5,
    "cordon": 4,
    "cordon_on_bus": 2,
    "drain_on_bus": 1,
    "delete_node": 1,
    "create_pod": 6,
    "delete_pod": 3,
}
"""What happens, and how likely each of it is."""
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{{label}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  containers: [{{name: only, image: none}}]
"""
QOS = ("", 'qos.coreweave.cloud/interruptable: "true"')


@dataclass
class Deeds:
    """What was certainly done, so that it can be looked for afterwards.

    created, deleted: names of NodePools.
    unsure: names of NodePools that may have been deleted: the command failed, or has no outcome.
    labels: of each NodePool, the labels of Nodes that kubectl has added, one key for each.
    notes: of each NodePool, the last note that kubectl has set, and the end of the log before that.
    pods: the Node of each Pod.
    """

    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    labels: dict[str, set[str]] = field(default_factory=dict)
    notes: dict[str, tuple[str, int]] = field(default_factory=dict)
    pods: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class Load:
    """People at work, one deed after the other; what fails is left."""

    def __init__(self, seed: int, cluster: Cluster, plane: Plane) -> None:
        self.deeds = Deeds()
        self._random = Random(seed)
        self._cluster, self._plane = cluster, plane
        self._number = 0

    def act(self) -> None:
        """One deed."""
        self._number += 1
        (name,) = self._random.choices([*ACTIONS], [*ACTIONS.values()])
        done = False
        with suppress(ClientError):  # Refused, or without an outcome: nothing is expected of it.
            done = getattr(self, f"_{name}")()
        result = name if done else f"{name}, failed"
        self.deeds.counts[result] = self.deeds.counts.get(result, 0) + 1

    def _pool(self) -> str:
        living = sorted(self._living())
        return self._random.choice(living) if living else ""

    def _living(self) -> set[str]:
        return self.deeds.created - self.deeds.deleted - self.deeds.unsure

    def _node(self) -> tuple[str, str]:
        nodes = self._plane.do(lambda client: client.nodes.list())
        found = sorted(each.key for each in nodes if each.document is not None)
        if not found:
            return "", ""
        name = self._random.choice(found)
        document: Any = self._plane.node(name) or {}
        labels = document.get("metadata", {}).get("labels", {})
        return name, str(labels.get("compute.coreweave.com/node-pool", ""))

    def _kubectl(self, *arguments: str, given: str | None = None) -> bool:
        timeout = ("--request-timeout=5s", *arguments)
        return self._cluster.run(*timeout, given=given).returncode == 0

    def _manifest(self, name: str) -> dict[str, Any]:
        return dict(node_pool(name, targetNodes=self._random.randint(0, TARGET_MAX)))

    def _has_room(self) -> bool:
        return len(self._living()) < POOLS_MAX

    def _create(self) -> bool:
        name = f"storm-{self._number}"
        manifest = json.dumps(self._manifest(name))
        if not self._has_room() or not self._kubectl("create", "-f", "-", given=manifest):
            return False
        self.deeds.created.add(name)
        return True

    def _create_on_bus(self) -> bool:
        name = f"storm-{self._number}"
        if not self._has_room():
            return False
        self._plane.do(lambda client: client.nodepools.apply(self._manifest(name)))
        self.deeds.created.add(name)
        return True

    def _delete(self) -> bool:
        name = self._pool()
        if not name or self._has_room():
            return False
        done = self._kubectl("delete", "nodepool", name, "--wait=false")
        (self.deeds.deleted if done else self.deeds.unsure).add(name)
        return done

    def _delete_on_bus(self) -> bool:
        name = self._pool()
        if not name or self._has_room():
            return False
        self.deeds.unsure.add(name)
        self._plane.do(lambda client: client.nodepools.delete(name))
        self.deeds.unsure.remove(name)
        self.deeds.deleted.add(name)
        return True

    def _patch(self, name: str, spec: Mapping[str, object]) -> bool:
        patch = json.dumps({"spec": spec})
        return bool(name) and self._kubectl("patch", "nodepool", name, "--type=merge", "-p", patch)

    def _scale(self) -> bool:
        return self._patch(self._pool(), {"targetNodes": self._random.randint(0, TARGET_MAX)})

    def _scale_on_bus(self) -> bool:
        name, target = self._pool(), self._random.randint(0, TARGET_MAX)
        if not name:
            return False
        self._plane.do(lambda client: client.nodepools.scale(name, target))
        return True

    def _label(self) -> bool:
        name, key = self._pool(), f"label-{self._number}"
        if not self._patch(name, {"nodeLabels": {key: "set"}}):
            return False
        self.deeds.labels.setdefault(name, set()).add(key)
        return True

    def _note(self) -> bool:
        name, value = self._pool(), f"kubectl-{self._number}"
        try:
            end = self._plane.do(lambda client: client.events.newest_position())
        except ClientError:
            return False
        if not self._patch(name, {"nodeAnnotations": {NOTE: value}}):
            # Nobody knows what became of it.
            self.deeds.notes.pop(name, None)
            return False
        self.deeds.notes[name] = (value, end)
        return True

    def _note_on_bus(self) -> bool:
        name, value = self._pool(), f"bus-{self._number}"
        found: Any = self._plane.pool(name) if name else None
        if found is None:
            return False
        metadata = {"name": name, "resourceVersion": found["metadata"]["resourceVersion"]}
        if labels := found["metadata"].get("labels"):
            metadata["labels"] = labels
        spec = {**found["spec"], "nodeAnnotations": {NOTE: value}}
        manifest = {**self._manifest(name), "metadata": metadata, "spec": spec}
        self._plane.do(lambda client: client.nodepools.apply(manifest))
        return True

    def _cordon(self) -> bool:
        node, _ = self._node()
        verb = self._random.choice(("cordon", "uncordon"))
        return bool(node) and self._kubectl(verb, node)

    def _cordon_on_bus(self) -> bool:
        return self._command(self._random.choice((CordonNode, UncordonNode)))

    def _drain_on_bus(self) -> bool:
        return self._command(DrainNode)

    def _command(self, kind: Callable[..., Any]) -> bool:
        node, pool = self._node()
        if not node:
            return False
        self._plane.do(
            lambda client: client.commands.send(kind(**client.commands.fields_of(pool), node=node))
        )
        return True

    def _delete_node(self) -> bool:
        node, _ = self._node()
        return bool(node) and self._kubectl("delete", "node", node, "--wait=false")

    def _create_pod(self) -> bool:
        name, label = f"storm-{self._number}", self._random.choice(QOS)
        node, _ = self._node()
        if not node:
            return False
        self.deeds.pods[name] = node
        return self._kubectl(
            "create", "-f", "-", given=POD.format(name=name, node=node, label=label)
        )

    def _delete_pod(self) -> bool:
        if not self.deeds.pods:
            return False
        name = self._random.choice(sorted(self.deeds.pods))
        return self._kubectl("delete", "pod", name, "--wait=false", "--ignore-not-found")
