"""Pods as they are read from their cluster, as far as they matter to their Node."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, cast

from agent.bus import Document
from agent.cluster import PodObject
from agent.reading import UnreadableDocument, moment, number, part, parts, text
from nodepool.contract.keys import pod_name
from nodepool.contract.model import MANAGED_TAINTS
from nodepool.contract.pods import (
    ACCELERATOR,
    GPU,
    GPUS_MAX,
    GRACE_MAX_S,
    TOLERATIONS_MAX,
    Pod,
    PodClass,
    Toleration,
)

INTERRUPTABLE: Final = "qos.coreweave.cloud/interruptable"
"""The label of a Pod that may be ended at once."""
GRACEFUL: Final = (
    "qos.coreweave.com/graceful-interruptible",
    "qos.coreweave.cloud/graceful-interruptible",
)
"""The labels of a Pod that may be ended within its grace period."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of the image of a static Pod, which only its kubelet can end."""
VERIFICATION: Final = "hpc-verification"
"""The namespace of the Pods that verify Nodes."""

_MANAGED: Final = frozenset({"", *(taint.key for taint in MANAGED_TAINTS)})
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_OPERATORS: Final = frozenset({"", "Equal", "Exists"})
_EFFECTS: Final = frozenset({"", "NoSchedule", "PreferNoSchedule", "NoExecute"})
_QUANTITY: Final = re.compile(r"([0-9]{1,18})(k|M|G|Ki|Mi|Gi)?")
_SUFFIXES: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def pod_object(document: Document) -> PodObject | None:
    """A Pod; None for one that is bound to no Node, or has ended.

    One that is being deleted without any grace left has ended too, as its kubelet has confirmed or
    nobody will any more: only a finalizer keeps the object.

    UnreadableDocument for what is no Pod.
    """
    spec = part(document, "spec")
    node = text(spec, "nodeName")
    if not node or part(document, "status").get("phase") in _ENDED:
        return None
    metadata = part(document, "metadata")
    namespace = text(metadata, "namespace", "default")
    ends = moment(metadata, "deletionTimestamp")
    grace_s = number(spec, "terminationGracePeriodSeconds", 30)
    if ends is not None:
        grace_s = number(metadata, "deletionGracePeriodSeconds", grace_s)
        if grace_s == 0 and metadata.get("deletionGracePeriodSeconds") is not None:
            return None
    grace_s = max(0, min(grace_s, GRACE_MAX_S))
    # The API server writes when the grace period ends, not when it began.
    began = None if ends is None else max(ends, _LONG_AGO) - timedelta(seconds=grace_s)
    pod = Pod(
        name=pod_name(namespace, text(metadata, "name", None)),
        daemon_set=_is_daemon_set(metadata),
        verification=namespace == VERIFICATION,
        interruption=_interruption(part(metadata, "labels")),
        grace_s=grace_s,
        terminating=ends is not None,
        gpus=_asked_for(spec, GPU),
        accelerators=_asked_for(spec, ACCELERATOR),
        tolerations=tolerations(spec),
    )
    created = moment(metadata, "creationTimestamp") or _LONG_AGO
    return PodObject(namespace, text(metadata, "uid", None), node, pod, created, began)


def _is_daemon_set(metadata: Document) -> bool:
    if MIRROR in part(metadata, "annotations"):
        return True
    return any(
        owner.get("kind") == "DaemonSet" and owner.get("controller") is not False
        for owner in parts(metadata, "ownerReferences")
    )


def _interruption(labels: Document) -> PodClass:
    if labels.get(INTERRUPTABLE) == "true":
        return PodClass.INTERRUPTABLE
    if any(labels.get(label) == "true" for label in GRACEFUL):
        return PodClass.GRACEFUL
    return PodClass.BLOCKING


def tolerations(spec: Document) -> tuple[Toleration, ...]:
    """The tolerations that can keep a Pod on a Node that the control plane taints.

    Those that end by themselves (`tolerationSeconds`) are none, and an operator or effect that is
    not known tolerates nothing. Those of the keys that the control plane manages come alone.
    """
    found = dict.fromkeys(_tolerations(spec))
    # One of a longer list that tolerates everything must not be cut away.
    broadest = sorted(found, key=lambda each: (bool(each.key), bool(each.effect)))
    return tuple(broadest[:TOLERATIONS_MAX])


def _tolerations(spec: Document) -> Iterator[Toleration]:
    for each in parts(spec, "tolerations"):
        key, operator = text(each, "key"), text(each, "operator") or "Equal"
        effect = text(each, "effect")
        is_known = key in _MANAGED and operator in _OPERATORS and effect in _EFFECTS
        if is_known and each.get("tolerationSeconds") is None:
            yield _toleration(key, operator, text(each, "value"), effect)


@lru_cache(maxsize=1_024)
def _toleration(key: str, operator: str, value: str, effect: str) -> Toleration:
    return Toleration(
        key=key,
        operator=cast("Literal['Equal', 'Exists']", operator),
        value=value,
        effect=cast("Literal['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute']", effect),
    )


def _asked_for(spec: Document, resource: str) -> int:
    """How many of a resource a Pod needs at any time, as Kubernetes counts it.

    See https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers.
    """
    running = sum(_quantity(each, resource) for each in parts(spec, "containers"))
    beside, most = 0, 0
    for each in parts(spec, "initContainers"):
        needed = _quantity(each, resource)
        if each.get("restartPolicy") == "Always":
            beside += needed
            most = max(most, beside)
        else:
            most = max(most, beside + needed)
    return min(max(running + beside, most), GPUS_MAX)


def _quantity(container: Document, resource: str) -> int:
    resources = part(container, "resources")
    found = part(resources, "requests").get(resource)
    if found is None:
        found = part(resources, "limits").get(resource)
    if found is None:
        return 0
    if isinstance(found, int):
        return max(0, int(found))
    if not isinstance(found, str):
        raise UnreadableDocument(resource, "a quantity", found)
    match = _QUANTITY.fullmatch(found)
    # Written in another way, such as `1e3`: a Pod that runs is not to be overlooked because of it.
    return GPUS_MAX if match is None else int(match[1]) * _SUFFIXES[match[2] or ""]
