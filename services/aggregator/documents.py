"""The documents of the read model, in the shape of Kubernetes objects.

https://docs.coreweave.com/products/cks/nodes/nodepool-status describes the status of a NodePool.
"""

from collections.abc import Iterator
from datetime import datetime

from aggregator.machine_documents import machine_document
from aggregator.objects import (
    AnyObject,
    CapacityObject,
    ClusterObject,
    MachineObject,
    NodeObject,
    NodePoolObject,
    QuotaObject,
)
from aggregator.resources import resources
from aggregator.status import Document, render_status
from nodepool.contract.keys import CONTROL_PLANE, pool_path
from nodepool.contract.model import (
    API_VERSION,
    FINALIZER,
    KIND,
    NodePhase,
    Taint,
    spec_document,
)
from nodepool.contract.moments import rfc3339


def document(item: AnyObject, *, show_deprecated: bool = False) -> Document:
    """Return an object as readers see it, with or without deprecated NodePool conditions."""
    match item:
        case NodePoolObject():
            return _pool(item, show_deprecated=show_deprecated)
        case NodeObject():
            return _node(item)
        case QuotaObject():
            return {
                "kind": "Quota",
                "org": item.org,
                "zone": item.zone,
                "instanceType": item.instance_type,
                "limit": item.limit,
                "used": item.used,
                **({"givenUp": rfc3339(item.given_up)} if item.given_up is not None else {}),
                "resourceVersion": str(item.version),
            }
        case CapacityObject():
            return _capacity(item)
        case MachineObject():
            return machine_document(item)
        case ClusterObject():
            return {
                "apiVersion": API_VERSION,
                "kind": "Cluster",
                "metadata": {
                    "name": item.cluster,
                    "resourceVersion": str(item.version),
                    "creationTimestamp": rfc3339(item.registered),
                },
                "spec": {
                    "org": item.org,
                    "zone": item.zone,
                    **({"kubernetes": True} if item.kubernetes else {}),
                    **({"kubernetesUid": item.kubernetes_uid} if item.kubernetes_uid else {}),
                },
            }


def _pool(pool: NodePoolObject, *, show_deprecated: bool) -> Document:
    _, _, name = pool_path(pool.key)
    metadata: dict[str, object] = {
        "name": name,
        "uid": pool.uid,
        "generation": pool.generation,
        "resourceVersion": str(pool.version),
        "creationTimestamp": rfc3339(pool.created),
        "finalizers": [FINALIZER],
    }
    if pool.labels:
        metadata["labels"] = dict(pool.labels)
    if pool.annotations:
        metadata["annotations"] = dict(pool.annotations)
    if pool.deleting is not None:
        metadata["deletionTimestamp"] = rfc3339(pool.deleting)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec_document(pool.spec),
        "status": render_status(pool, show_deprecated=show_deprecated),
    }


def _node(node: NodeObject) -> Document:
    _, _, pool = pool_path(node.pool)
    labels = {
        "node.kubernetes.io/instance-type": node.instance_type,
        "topology.kubernetes.io/zone": node.zone,
        "compute.coreweave.com/node-pool": pool,
        **node.labels,
    }
    spec: dict[str, object] = {"taints": [_taint(taint) for taint in node.taints]}
    if node.unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "resourceVersion": str(node.version),
            "creationTimestamp": rfc3339(node.created),
            "labels": labels,
            "annotations": dict(node.annotations),
        },
        "spec": spec,
        "status": {
            "phase": node.phase.value,
            "assignment": node.assignment,
            "cordon": node.cordon,
            "lock": node.lock,
            **_drain(node),
            **_unusable(node),
            "conditions": list(_node_conditions(node)),
            **_reboots(node),
            **({"nodeProfile": node.profile} if node.profile else {}),
            **({"reportRequest": node.request} if node.request else {}),
            **({"silenceDue": rfc3339(node.silence_due)} if node.silence_due else {}),
            **_resources(node),
            **_blocking(node),
        },
    }


def _drain(node: NodeObject) -> Document:
    """Return how a Node is drained; nothing if the Node is not being drained."""
    if node.phase is not NodePhase.DRAINING:
        return {}
    return {"drain": "forced" if node.forced else "safe"}


def _reboots(node: NodeObject) -> Document:
    """Return how often a Node was rebooted, and when a reboot for which problems ended last."""
    ended = {each.type: rfc3339(each.ended) for each in node.rebooted_for}
    return {
        **({"reboots": node.boot} if node.boot else {}),
        **({"rebootedFor": ended} if ended else {}),
    }


def _unusable(node: NodeObject) -> Document:
    """Return how a Node leaves, since when it is cordoned, and who else has the Node."""
    since, asked, answer_by = node.preempted_since, node.asked_since, node.answer_by
    progressed = node.progressed if node.removal is not None else None
    cordoned = node.cordoned_since if node.cordon_reason else None
    return {
        **({"cordonedSince": rfc3339(cordoned)} if cordoned is not None else {}),
        **({"answerBy": rfc3339(answer_by)} if answer_by is not None else {}),
        **({"progressed": rfc3339(progressed)} if progressed is not None else {}),
        **({"preemptedSince": rfc3339(since)} if since is not None else {}),
        **({"askedSince": rfc3339(asked)} if asked is not None else {}),
        **({"warned": True} if node.warned else {}),
        **({} if node.usable else {"reservedFor": CONTROL_PLANE}),
    }


def _resources(node: NodeObject) -> Document:
    """Return the resources of a Node that has joined its cluster; Pods may use all of them."""
    if not node.is_registered:
        return {}
    found = resources(node.instance_type)
    return {"capacity": found, "allocatable": found} if found else {}


def _blocking(node: NodeObject) -> Document:
    """Return the Pods that a drain waits for, if there are any."""
    if not node.blocking:
        return {}
    pods = [{"name": pod.name, "since": rfc3339(pod.since)} for pod in node.blocking]
    return {"blockingPods": pods, "blockingPodCount": node.blocking_count}


def _taint(taint: Taint) -> dict[str, str]:
    shown = {"key": taint.key, "effect": taint.effect}
    return {**shown, "value": taint.value} if taint.value else shown


def _node_conditions(node: NodeObject) -> Iterator[Document]:
    registered = node.is_registered
    yield _condition(
        "CWRegistered",
        registered,
        "Registered" if registered else "NotRegistered",
        f"Node {node.name} is {'' if registered else 'not yet '}registered",
        node.registered or node.created,
    )
    yield _condition(
        "CWActive",
        node.active,
        "WorkloadsRunning" if node.active else "NoWorkloads",
        node.work or "nothing runs here",
        node.active_since or node.created,
    )
    leaves = node.removal is not None
    yield _condition(
        "CWNodeRemoval",
        leaves,
        node.removal.value if node.removal is not None else "NotPending",
        f"Node {node.name} is {'to be removed' if leaves else 'to stay'}",
        node.removal_since or node.created,
    )
    yield from _health_conditions(node)


def _health_conditions(node: NodeObject) -> Iterator[Document]:
    """Yield the action on a Node that stays, and the conditions that were reported of it."""
    if node.action is not None and node.action_condition:
        waits = node.action_condition == "PendingPhaseState"
        yield _condition(
            node.action_condition,
            True,
            node.action.value,
            f"Node {node.name} {'waits for' if waits else 'is in'} {node.action.value}",
            node.action_since or node.created,
        )
    for each in node.reported:
        yield {
            "type": each.type,
            "status": each.status,
            "reason": each.reason,
            "message": each.message,
            "lastTransitionTime": rfc3339(each.since),
        }


def _condition(kind: str, holds: bool, reason: str, message: str, since: datetime) -> Document:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(since),
    }


def _capacity(item: CapacityObject) -> Document:
    since = item.preempting_since
    return {
        "kind": "Capacity",
        "zone": item.zone,
        "instanceType": item.instance_type,
        "free": item.free,
        "assigned": item.assigned,
        "triage": item.triage,
        "reclaimed": item.reclaimed,
        "toReclaim": item.to_reclaim,
        **({"zap": item.zap} if item.zap else {}),
        **({"givingWay": item.giving_way} if item.giving_way else {}),
        **({"preemptingSince": rfc3339(since)} if since is not None else {}),
        **({"unwarned": item.unwarned} if item.unwarned else {}),
        **({"unmarked": item.unmarked} if item.unmarked else {}),
        **({"unsure": item.unsure} if item.unsure else {}),
        "resourceVersion": str(item.version),
    }
