"""What a Kubernetes cluster shows: NodePools, Nodes and Pods, as far as the agent acts on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from agent.bus import Document
from nodepool.contract.model import Taint
from nodepool.contract.pods import Pod

SKEW_MAX: Final = timedelta(minutes=1)
"""The most by which the clocks of two API servers differ; a new object may look that much older."""


@dataclass(frozen=True, slots=True)
class PoolObject:
    """A NodePool object.

    name, uid, generation, version: from its metadata; version is its `resourceVersion`.
    spec, status: its spec and status as documents.
    labels, annotations, finalizers: from its metadata.
    deleting: whether it has a `deletionTimestamp`.
    created, deleted: its `creationTimestamp` and its `deletionTimestamp`; empty if it
      has none.
    agreed: the last agreement that was seen on it, used if its annotation is gone; else empty.
    """

    name: str
    uid: str
    generation: int
    version: str
    spec: Document
    status: Document = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    created: str = ""
    deleted: str = ""
    agreed: str = ""


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node object.

    name, uid, version: from its metadata; version is its `resourceVersion`.
    labels, annotations: from its metadata.
    taints, unschedulable: from its spec.
    taints_added: the `timeAdded` of each taint that has one, by `key:effect`.
    conditions: from its status.
    deleting: whether it has a `deletionTimestamp`.
    created: its `creationTimestamp`; None if it has none.
    provider_id, pod_cidrs: from its spec; other components set them.
    """

    name: str
    uid: str
    version: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    taints_added: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False
    conditions: tuple[Document, ...] = ()
    deleting: bool = False
    created: datetime | None = None
    provider_id: str = ""
    pod_cidrs: tuple[str, ...] = ()


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
