"""Reads from the Pods of a cluster what matters to their Nodes."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import ceil
from typing import Final, Literal, cast

from agent.pods.quantities import asked_for
from agent.reading import Document, moment, number, part, parts, text
from nodepool.contract.keys import pod_name
from nodepool.contract.model import MANAGED_TAINTS
from nodepool.contract.pods import (
    ACCELERATOR,
    GPU,
    GPUS_MAX,
    TOLERATIONS_MAX,
    Pod,
    PodClass,
    Toleration,
)
from nodepool.contract.timetable import GRACE_MAX_S


@dataclass(frozen=True, slots=True)
class PodObject:
    """A Pod that is bound to a Node and has not ended.

    namespace, uid, node: from the object.
    pod: what decides where the Pod may run and when its Node may leave; its name is
      `namespace/name`.
    created: when it was created.
    terminating_since: when its deletion began; None while it runs.
    blocked_by: why the API server refused its last eviction, in the words of the API server; else
      empty.
    """

    namespace: str
    uid: str
    node: str
    pod: Pod
    created: datetime
    terminating_since: datetime | None = None
    blocked_by: str = ""


INTERRUPTABLE: Final = "qos.coreweave.cloud/interruptable"
"""The label of a Pod that the control plane may end at once."""
GRACEFUL: Final = (
    "qos.coreweave.com/graceful-interruptible",
    "qos.coreweave.cloud/graceful-interruptible",
)
"""The labels of a Pod that the control plane may end within its grace period."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of the mirror Pod of a static Pod, which only its kubelet can end."""
VERIFICATION: Final = "hpc-verification"
"""The namespace of the Pods that verify Nodes."""

_MANAGED: Final = frozenset({"", *(taint.key for taint in MANAGED_TAINTS)})
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_OPERATORS: Final = frozenset({"", "Equal", "Exists"})
_EFFECTS: Final = frozenset({"", "NoSchedule", "PreferNoSchedule", "NoExecute"})
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def pod_object(document: Document) -> PodObject | None:
    """Return a Pod; None if the Pod is bound to no Node, or has ended.

    A Pod that is being deleted with no grace period left has ended too: its kubelet has confirmed
    the end, or nothing will confirm it, and only a finalizer keeps the object.

    Raise UnreadableDocument if the document is no Pod.
    """
    spec = part(document, "spec")
    node = text(spec, "nodeName")
    if not node or part(document, "status").get("phase") in _ENDED:
        return None
    metadata = part(document, "metadata")
    namespace = sys.intern(text(metadata, "namespace", "default"))
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
        daemon_set=is_daemon_set(metadata),
        verification=namespace == VERIFICATION,
        interruption=_interruption(part(metadata, "labels")),
        grace_s=grace_s,
        terminating=ends is not None,
        gpus=gpus_asked_for(spec, GPU),
        accelerators=gpus_asked_for(spec, ACCELERATOR),
        tolerations=lasting_tolerations(spec),
    )
    created = moment(metadata, "creationTimestamp") or _LONG_AGO
    return PodObject(namespace, text(metadata, "uid", None), sys.intern(node), pod, created, began)


def is_daemon_set(metadata: Document) -> bool:
    """Return whether a Pod with this metadata belongs to a DaemonSet, or is a static one."""
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


def lasting_tolerations(spec: Document) -> tuple[Toleration, ...]:
    """Return the tolerations that can keep a Pod on a Node that the control plane taints.

    Leave out tolerations that expire (`tolerationSeconds`), and tolerations of keys that the
    control plane does not manage.
    """
    found = dict.fromkeys(
        toleration
        for each, toleration in _tolerations(spec)
        if toleration.key in _MANAGED and each.get("tolerationSeconds") is None
    )
    # Put the broadest first: the limit must not drop a toleration that tolerates everything.
    broadest = sorted(found, key=lambda each: (bool(each.key), bool(each.effect)))
    return tuple(broadest[:TOLERATIONS_MAX])


def tolerations(spec: Document) -> tuple[Toleration, ...]:
    """Return the tolerations with which a Pod is scheduled, each once, in a fixed order."""
    found = {toleration for _, toleration in _tolerations(spec)}
    return tuple(sorted(found, key=lambda each: (each.key, each.operator, each.value, each.effect)))


def _tolerations(spec: Document) -> Iterator[tuple[Document, Toleration]]:
    """Yield each toleration with its document; skip an unknown operator or effect."""
    for each in parts(spec, "tolerations"):
        key, operator = text(each, "key"), text(each, "operator") or "Equal"
        effect = text(each, "effect")
        if operator in _OPERATORS and effect in _EFFECTS:
            yield each, _toleration(key, operator, text(each, "value"), effect)


@lru_cache(maxsize=1_024)
def _toleration(key: str, operator: str, value: str, effect: str) -> Toleration:
    return Toleration(
        key=key,
        operator=cast("Literal['Equal', 'Exists']", operator),
        value=value,
        effect=cast("Literal['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute']", effect),
    )


def gpus_asked_for(spec: Document, resource: str) -> int:
    """Return how many GPUs a Pod with this spec needs at any time, under one of their names.

    GPUS_MAX where that is not understood: a Pod that runs is not to be overlooked because of it.
    """
    return ceil(min(asked_for(spec, resource), Decimal(GPUS_MAX)))
