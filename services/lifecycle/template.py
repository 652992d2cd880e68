"""What all Nodes of a NodePool have in common."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodepool.contract.events import NodePoolValidated
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import ComputeClass, Taint
from nodepool.state.values import replace

INLINE_MAX = 4_096
"""The maximum length, in characters, of labels, annotations and taints that each event repeats.

This bounds how much a change of a NodePool with many Nodes writes to the log.
"""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What all Nodes of a NodePool have in common, and the metadata of the NodePool itself.

    node_labels, node_annotations, node_taints: what the NodePool specifies for its Nodes.
    labels, annotations: the metadata of the NodePool object.
    evicts_unhealthy: whether unhealthy Nodes are cured or replaced without a command.
    has_agent: whether an agent connects the cluster to Kubernetes, and reports its Nodes.
    version: the number of changes of this template, from 1.
    revision: the version in which the labels, annotations or taints of the Nodes changed last.
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
        """Return whether the template has an event of its own, and is not part of each event."""
        pairs = (*self.node_labels.items(), *self.node_annotations.items())
        taints = sum(len(f"{taint.key}{taint.value}{taint.effect}") for taint in self.node_taints)
        return taints + sum(len(key) + len(value) for key, value in pairs) > INLINE_MAX


def make_template(event: NodePoolValidated, *, has_agent: bool) -> NodeTemplate:
    """Return the template of a new NodePool, of a cluster with or without an agent."""
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


def update_template(before: NodeTemplate, event: NodePoolValidated) -> NodeTemplate:
    """Return the template after a change of its NodePool; the same object if nothing changed."""
    after = make_template(event, has_agent=before.has_agent)
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
