"""Whether a cluster and the bus agree on every NodePool and Node, once both have come to rest."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.pools.objects import read_spec
from nodepool.contract.buckets import Bucket
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command
from nodepool.contract.model import NodePoolSpec, spec_document
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import connect
from support.audit.auditor import Auditor
from support.audit.facts import Violation
from testbed.cluster import Cluster
from testbed.plane import ORG, Plane

Json = Mapping[str, Any]
MANAGED = "compute.coreweave.com/managed"
POOL_UID = "compute.coreweave.com/node-pool-uid"
CORDON = "node.kubernetes.io/unschedulable"
OF_KUBELETS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
"""Conditions that stand in the cluster first, and come to the bus from there."""
COUNTS = ("currentNodes", "inProgress")


def disagreements(cluster: Cluster, plane: Plane) -> list[str]:
    """What stands otherwise in the cluster than on the bus, a line each; empty where all agrees."""
    pools, nodes = _wanted(plane, "nodepools"), _wanted(plane, "nodes")
    objects = {each["metadata"]["name"]: each for each in cluster.objects("nodepools")}
    found = {each["metadata"]["name"]: each for each in cluster.objects("nodes")}
    uids = {name: each["metadata"]["uid"] for name, each in objects.items()}
    return [
        *_pools(pools, objects),
        *_nodes({name: node for name, node in nodes.items() if _joined(node)}, found, uids),
        *_strays(nodes, found),
    ]


def log_of(plane: Plane) -> Sequence[Entry]:
    """The whole log of the bus."""

    async def read() -> Sequence[Entry]:
        connection = await connect(plane.url, "audit", patience_s=30)
        reader = Reader(connection, STREAM, [">"])
        entries: list[Entry] = []
        try:
            await reader.open()
            while reader.pending:
                entries += await reader.next(5)
        finally:
            await reader.close()
            await connection.close()
        return entries

    return asyncio.run(read())


def messages_about(plane: Plane, pool: str) -> Sequence[Entry]:
    """All that the log of the bus has about a NodePool of the cluster, and about its Nodes."""
    of = [ORG, plane.cluster, pool]
    return [entry for entry in log_of(plane) if entry.subject.split(".")[-4:-1] == of]


def commands(entries: Sequence[Entry]) -> Mapping[str, Sequence[Command]]:
    """The commands in a log, by the id that a sender has given to each of them."""
    return _audited(entries)[0]


def violations(entries: Sequence[Entry]) -> list[str]:
    """What breaks a rule that always holds in a log, and ids that came with several contents."""
    sent, broken = _audited(entries)
    contents = {id: {each.model_dump_json() for each in same} for id, same in sent.items()}
    return [
        *broken,
        *(f"{id} has several contents" for id, each in contents.items() if len(each) > 1),
    ]


def _audited(entries: Sequence[Entry]) -> tuple[dict[str, list[Command]], list[str]]:
    # A setting of these planes leaves out the taint of the reservation in production.
    auditor, broken = Auditor(taints_production=False), []
    for entry in entries:
        try:
            auditor.read(entry)
        except Violation as violation:
            broken.append(str(violation))
    sent: dict[str, list[Command]] = {}
    for stored in auditor.history.by_position.values():
        if isinstance(stored.message, Command):
            sent.setdefault(stored.id, []).append(stored.message)
    return sent, broken


def _wanted(plane: Plane, bucket: Bucket) -> dict[str, Json]:
    found = plane.do(lambda client: client.objects(bucket).list())
    return {each.key: each.document for each in found if each.document is not None}


def _pools(wanted: Mapping[str, Json], objects: Mapping[str, Json]) -> Iterator[str]:
    yield from (f"NodePool {name}: only on the bus" for name in sorted(wanted.keys() - objects))
    yield from (f"NodePool {name}: only in the cluster" for name in sorted(objects.keys() - wanted))
    for name in sorted(wanted.keys() & objects):
        yield from _differences(f"NodePool {name}", _shown(wanted[name]), _shown(objects[name]))
        if wanted[name]["metadata"].get("deletionTimestamp"):
            yield f"NodePool {name}: still being deleted"


def _shown(pool: Json) -> Json:
    """What an object is to show of a NodePool of the bus."""
    of, status = pool["metadata"]["generation"], pool.get("status", {})
    return {
        "spec": _canonical(pool["spec"]),
        "labels": dict(pool["metadata"].get("labels") or {}),
        "conditions": {
            each["type"]: (each["status"], each["reason"], each.get("observedGeneration") == of)
            for each in status.get("conditions", ())
        },
        **{name: status.get(name) or 0 for name in COUNTS},
    }


def _canonical(spec: Json) -> Json:
    read = read_spec(spec)
    return spec_document(read) if isinstance(read, NodePoolSpec) else dict(spec)


def _joined(node: Json) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    return conditions.get("CWRegistered") == "True"


def _nodes(
    wanted: Mapping[str, Json], found: Mapping[str, Json], uids: Mapping[str, str]
) -> Iterator[str]:
    yield from (f"Node {name}: only on the bus" for name in sorted(wanted.keys() - found))
    for name in sorted(wanted.keys() & found):
        node, item = wanted[name], found[name]
        labels = dict(node["metadata"]["labels"])
        pool = labels["compute.coreweave.com/node-pool"]
        if pool in uids:
            labels[POOL_UID] = uids[pool]
        yield from _differences(f"Node {name}", _wants(node, labels), _has(item, node, labels))


def _wants(node: Json, labels: Mapping[str, str]) -> Json:
    """What a Node of the bus is to have in the cluster."""
    status = node["status"]
    return {
        "assignment": status["assignment"],
        "cordon": status.get("cordon", 0),
        "lock": status.get("lock", 0),
        "unschedulable": bool(node["spec"].get("unschedulable")),
        "labels": labels,
        "annotations": dict(node["metadata"].get("annotations") or {}),
        "taints": _taints(node),
        "conditions": {
            each["type"]: each["status"]
            for each in status["conditions"]
            if each["type"] not in OF_KUBELETS
        },
        "ready": next(
            (each["status"] for each in status["conditions"] if each["type"] == "Ready"), "True"
        ),
    }


def _has(item: Json, node: Json, labels: Mapping[str, str]) -> Json:
    """What a Node has in the cluster of what the bus wants of it."""
    metadata = item["metadata"]
    managed = json.loads(metadata.get("annotations", {}).get(MANAGED, "{}"))
    wanted = node["metadata"].get("annotations") or {}
    conditions = {each["type"]: each["status"] for each in item["status"].get("conditions", ())}
    types = {each["type"] for each in node["status"]["conditions"]}
    keys = {taint.partition("=")[0] for taint in _taints(node)} | {"node.coreweave.cloud/reserved"}
    return {
        "assignment": managed.get("assignment", 0),
        "cordon": managed.get("cordon", 0),
        "lock": managed.get("lock", 0),
        "unschedulable": bool(item["spec"].get("unschedulable")),
        "labels": {key: value for key, value in metadata["labels"].items() if key in labels},
        "annotations": {
            key: value for key, value in metadata.get("annotations", {}).items() if key in wanted
        },
        "taints": [each for each in _taints(item) if each.partition("=")[0] in keys],
        "conditions": {
            kind: status
            for kind, status in conditions.items()
            if kind in types and kind not in OF_KUBELETS
        },
        "ready": conditions.get("Ready", "False"),
    }


def _taints(node: Json) -> list[str]:
    """Those of a Node but for that of a cordon, which Kubernetes gives itself."""
    taints = node["spec"].get("taints") or ()
    return sorted(
        f"{each['key']}={each.get('value', '')}:{each['effect']}"
        for each in taints
        if each["key"] != CORDON
    )


def _strays(wanted: Mapping[str, Json], found: Mapping[str, Json]) -> Iterator[str]:
    for name in sorted(found.keys() - wanted):
        if MANAGED in found[name]["metadata"].get("annotations", {}):
            yield f"Node {name}: only in the cluster"


def _differences(of: str, wanted: Json, found: Json) -> Iterator[str]:
    for name, value in wanted.items():
        if found[name] != value:
            yield f"{of}: {name} is {found[name]}, and {value} on the bus"
