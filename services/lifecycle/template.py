"""What the Nodes of a NodePool look like in their cluster: labels, annotations and taints."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.events import NodePoolValidated
from nodepool.contract.keys import PoolKey, pool_path
from nodepool.contract.model import (
    CORDON,
    RESERVED,
    ComputeClass,
    Taint,
)
from nodepool.contract.pods import reserved_taint
from nodepool.contract.production import (
    PRODUCTION,
    asked_taints,
    kind_taint,
    production_labels,
)

INLINE_MAX = 4_096
"""The most characters of labels, annotations and taints that are said of each Node anew.

So what a NodePool with many Nodes writes to the log at a change is bounded.
"""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What all Nodes of a NodePool have in common, and the metadata of the NodePool itself.

    node_labels, node_annotations, node_taints: what the NodePool asks for on its Nodes.
    labels, annotations: those of the NodePool object.
    evicts_unhealthy: whether its unhealthy Nodes are cured or replaced without being asked for.
    has_agent: whether an agent connects its cluster to Kubernetes, and reports its Nodes.
    version: counts the changes of any of this.
    revision: the version in which what is asked for on the Nodes changed last.
    """

    key: PoolKey
    uid: str
    zone: str
    instance_type: str
    compute_class: ComputeClass
    node_labels: Mapping[str, str]
    node_annotations: Mapping[str, str]
    node_taints: tuple[Taint, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    evicts_unhealthy: bool = False
    has_agent: bool = False
    version: int = 1
    revision: int = 1

    @property
    def is_large(self) -> bool:
        """Whether what is asked for on the Nodes is said once, and not of each of them."""
        pairs = (*self.node_labels.items(), *self.node_annotations.items())
        taints = sum(len(f"{taint.key}{taint.value}{taint.effect}") for taint in self.node_taints)
        return taints + sum(len(key) + len(value) for key, value in pairs) > INLINE_MAX


def first(event: NodePoolValidated, *, has_agent: bool) -> NodeTemplate:
    """The template of a new NodePool, of a cluster with or without an agent."""
    spec = event.spec
    return NodeTemplate(
        key=event.key,
        uid=event.uid,
        zone=event.zone,
        instance_type=spec.instance_type,
        compute_class=spec.compute_class,
        node_labels=spec.node_labels,
        node_annotations=spec.node_annotations,
        node_taints=spec.node_taints,
        labels=event.labels,
        annotations=event.annotations,
        evicts_unhealthy=not spec.lifecycle.disable_unhealthy_node_eviction,
        has_agent=has_agent,
    )


def following(before: NodeTemplate, event: NodePoolValidated) -> NodeTemplate:
    """The template after a change of its NodePool; the same one where nothing in it changed."""
    after = first(event, has_agent=before.has_agent)
    after = replace(after, version=before.version, revision=before.revision)
    if replace(after, evicts_unhealthy=before.evicts_unhealthy) == before:
        return before if after == before else after
    version = before.version + 1
    revision = before.revision if _same_nodes(before, after) else version
    return replace(after, version=version, revision=revision)


def _same_nodes(before: NodeTemplate, after: NodeTemplate) -> bool:
    return (before.node_labels, before.node_annotations, before.node_taints) == (
        after.node_labels,
        after.node_annotations,
        after.node_taints,
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """What a Node is in the eyes of its cluster, from which its managed labels and taints follow.

    state: its `node.coreweave.cloud/state`.
    reserved: what it is reserved for in production, where that is not its organisation.
    reserved_desired: what it is to be reserved for; empty for what it is.
    unschedulable: whether nothing new may be scheduled on it.
    """

    state: str = PRODUCTION
    reserved: str = ""
    reserved_desired: str = ""
    unschedulable: bool = False


IN_PRODUCTION = Standing()
"""A Node that takes work."""


def labels(
    template: NodeTemplate,
    node: str,
    topology: Mapping[str, str],
    standing: Standing = IN_PRODUCTION,
) -> dict[str, str]:
    """A Node's labels; what the control plane manages wins over the NodePool's."""
    return {**template.node_labels, **managed_labels(template, node, topology, standing)}


def managed_labels(
    template: NodeTemplate,
    node: str,
    topology: Mapping[str, str],
    standing: Standing = IN_PRODUCTION,
) -> dict[str, str]:
    """The labels of a Node that win over those that its NodePool asks for."""
    managed = {
        **production_labels(
            template.key,
            template.uid,
            INSTANCE_TYPES[template.instance_type],
            ZONES[template.zone],
            template.compute_class,
        ),
        **topology,
        "kubernetes.io/hostname": node,
        "node.coreweave.cloud/state": standing.state,
        RESERVED: reserved(template, standing),
    }
    if standing.reserved_desired:
        managed[f"{RESERVED}-desired"] = standing.reserved_desired
    return managed


def reserved(template: NodeTemplate, standing: Standing) -> str:
    """What a Node is reserved for: outside production, its state."""
    if standing.state != PRODUCTION:
        return standing.state
    return standing.reserved or pool_path(template.key)[0]


def managed_taints(template: NodeTemplate, standing: Standing = IN_PRODUCTION) -> tuple[Taint, ...]:
    """The taints of a Node that come before those of its NodePool.

    That of its kind, that of its reservation where that is not its organisation, and that of a
    cordon.
    """
    managed = [kind_taint(INSTANCE_TYPES[template.instance_type])]
    reservation = reserved(template, standing)
    if standing.state != PRODUCTION or reservation != pool_path(template.key)[0]:
        managed.append(reserved_taint(reservation))
    if standing.unschedulable:
        managed.append(CORDON)
    return tuple(managed)


def taints(template: NodeTemplate, standing: Standing = IN_PRODUCTION) -> tuple[Taint, ...]:
    """A Node's taints: those that are managed, then those of the NodePool."""
    return (*managed_taints(template, standing), *asked_taints(template.node_taints))
