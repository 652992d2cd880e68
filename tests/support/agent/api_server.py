"""An API server in memory, with the rules of Kubernetes for NodePool objects.

https://kubernetes.io/docs/reference/using-api/api-concepts/ has those of versions, and
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
those of the generation, the status subresource and finalizers.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.pools.objects import read_spec
from nodepool.contract.model import NodePoolSpec

Json = dict[str, Any]
CREATED = "2026-01-01T00:00:00Z"


class ApiError(Exception):
    """A refusal; its text is the reason: NotFound, Conflict, AlreadyExists or Invalid."""


def merged(document: object, patch: object) -> Any:
    """A document after a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result: Json = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@dataclass
class ApiServer:
    """The NodePool objects and the Events of a cluster.

    objects: by name.
    events: the messages of the Events by name.
    writes: how many requests have changed an object.
    uids: how many objects were created.
    """

    objects: dict[str, Json] = field(default_factory=dict)
    events: dict[str, str] = field(default_factory=dict)
    writes: int = 0
    uids: int = 0

    def create(self, document: Mapping[str, object]) -> Json:
        """Creates an object."""
        item: Json = copy.deepcopy(dict(document))
        name = item["metadata"]["name"]
        if name in self.objects:
            raise ApiError("AlreadyExists")
        _check(None, item["spec"])
        self.uids += 1
        metadata = {"uid": f"u{self.uids}", "generation": 1, "creationTimestamp": CREATED}
        item["metadata"] |= metadata
        item.pop("status", None)
        return self._store(item)

    def patch(self, name: str, patch: Mapping[str, Any], subresource: str = "") -> None:
        """Changes an object, or its status."""
        before = self.objects.get(name)
        if before is None:
            raise ApiError("NotFound")
        version = patch.get("metadata", {}).get("resourceVersion")
        if version not in (None, before["metadata"]["resourceVersion"]):
            raise ApiError("Conflict")
        after = merged(before, patch)
        if subresource == "status":
            after = {**before, "status": after.get("status", {})}
        else:
            after = {**after, "status": before.get("status", {})}
            self._change(before, after)
        if after != before:
            self._store(after)

    def _change(self, before: Json, after: Json) -> None:
        metadata, old = after["metadata"], before["metadata"]
        if after["spec"] != before["spec"]:
            _check(before["spec"], after["spec"])
            metadata["generation"] += 1
        if "deletionTimestamp" in old:
            added = set(metadata.get("finalizers", ())) - set(old.get("finalizers", ()))
            if added:
                raise ApiError("Invalid")

    def delete(self, name: str, uid: str = "", version: str = "") -> None:
        """Deletes an object, as soon as it has no finalizers."""
        item = self.objects.get(name)
        if item is None:
            raise ApiError("NotFound")
        metadata = item["metadata"]
        if (uid or metadata["uid"], version or metadata["resourceVersion"]) != (
            metadata["uid"],
            metadata["resourceVersion"],
        ):
            raise ApiError("Conflict")
        if "deletionTimestamp" not in item["metadata"]:
            after = copy.deepcopy(item)
            after["metadata"]["deletionTimestamp"] = CREATED
            after["metadata"]["generation"] += 1
            self._store(after)

    def _store(self, item: Json) -> Json:
        self.writes += 1
        metadata = item["metadata"]
        metadata["resourceVersion"] = str(self.writes)
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del self.objects[metadata["name"]]
        else:
            self.objects[metadata["name"]] = item
        return item

    def backup(self) -> dict[str, Json]:
        """Its objects, to be restored."""
        return copy.deepcopy(self.objects)

    def restore(self, objects: dict[str, Json]) -> None:
        """Its objects are those of a backup; resourceVersions go on."""
        self.objects = copy.deepcopy(objects)
        for item in self.objects.values():
            self.writes += 1
            item["metadata"]["resourceVersion"] = str(self.writes)


def _check(before: Mapping[str, object] | None, after: Mapping[str, object]) -> None:
    """Raises where the rules of the CustomResourceDefinition refuse a spec."""
    spec = read_spec(after)
    if not isinstance(spec, NodePoolSpec):
        raise ApiError("Invalid")
    if spec.autoscaling:
        least, most = spec.min_nodes, spec.max_nodes
        if least is None or most is None or not least <= spec.target <= most:
            raise ApiError("Invalid")
    if before is not None:
        old = read_spec(before)
        assert isinstance(old, NodePoolSpec), "what is stored was checked"
        same = (old.instance_type, old.compute_class) == (spec.instance_type, spec.compute_class)
        if not same:
            raise ApiError("Invalid")
