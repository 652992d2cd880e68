"""Pods as `get pods` and `describe pod` show them."""

from typing import TYPE_CHECKING

from nodepool.cli.tables import POOL_LABEL
from nodepool.contract.documents import Document

if TYPE_CHECKING:
    from nodepool.client.pods import ListedPod


def pod_document(pod: "ListedPod") -> Document:
    """Return a Pod as an object; fields without a value are left out."""
    from nodepool.contract.moments import rfc3339  # `--help` needs no models.

    spec: dict[str, object] = {
        "gpus": pod.gpus,
        "accelerators": pod.accelerators,
        "terminationGracePeriodSeconds": pod.grace_s,
    }
    if pod.node:
        spec["nodeName"] = pod.node
    status = {"phase": pod.phase, "reason": pod.reason, "message": pod.message}
    return {
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "creationTimestamp": rfc3339(pod.created),
            "labels": {POOL_LABEL: pod.pool},
        },
        "spec": spec,
        "status": {name: text for name, text in status.items() if text},
    }
