"""The checks of a command that need no stored state: they read nothing but the command.

Names, labels, annotations and taints must follow the rules of Kubernetes; see
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/,
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/ and
https://kubernetes.io/docs/reference/labels-annotations-taints/.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from nodepool.contract import affinity, grammar, well_known
from nodepool.contract.catalog import INSTANCE_TYPES, zone_fault
from nodepool.contract.commands import ApplyNodePool, RegisterCluster
from nodepool.contract.decode import explain
from nodepool.contract.documents import Document
from nodepool.contract.events import RefusalReason
from nodepool.contract.model import (
    MANAGED_TAINTS,
    ManifestMetadata,
    NodePoolSpec,
    Taint,
)

RESERVED = "Namespaces `*.coreweave.cloud` or `*.coreweave.com` are not allowed."
"""The message for a Node label in a reserved namespace, with the public documentation's words."""

_MANAGED = frozenset((taint.key, taint.effect) for taint in MANAGED_TAINTS)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command changes nothing.

    field: what to correct, named as in a manifest.
    message: what is wrong with it.
    reason: the kind of fault.
    """

    field: str
    message: str
    reason: RefusalReason = "Invalid"


def malformed_cluster(command: RegisterCluster) -> Refusal | None:
    """Return the first fault in the registration of a cluster; None if it has no fault."""
    if reason := zone_fault(command.zone):
        return Refusal("zone", reason)
    if reason := grammar.organisation(command.org):
        return Refusal("org", reason)
    if reason := grammar.dns1123_label(command.cluster):
        return Refusal("cluster", reason)
    return _malformed_kubernetes(command)


def _malformed_kubernetes(command: RegisterCluster) -> Refusal | None:
    uid, replaces = command.kubernetes_uid, command.replaces
    if uid and not command.kubernetes:
        return Refusal("kubernetesUid", "needs kubernetes: true")
    if replaces and not uid:
        return Refusal("replaces", "needs kubernetesUid, that of the cluster that takes its place")
    for field, value in (("kubernetesUid", uid), ("replaces", replaces)):
        if value and grammar.dns1123_label(value):
            return Refusal(field, f"{value!r} is no uid: lower case letters, digits and -")
    return None


def find_fault(manifest: ApplyNodePool) -> Refusal | None:
    """Return the first fault in a manifest; None if it has no fault."""
    return next(list_faults(manifest), None)


def list_document_faults(document: Document) -> Iterator[Refusal]:
    """Yield the faults in a manifest as people write it: the first of its schema, or all others."""
    try:
        content = json.dumps(document)
        command = ApplyNodePool.model_validate_json(content, strict=True, extra="forbid")
    except ValidationError as error:
        field, cause = explain(error, ApplyNodePool)
        yield Refusal(field, cause)
    else:
        yield from list_faults(command.model_copy(update={"pool": command.metadata.name}))


def list_faults(manifest: ApplyNodePool) -> Iterator[Refusal]:
    """Yield every fault in a manifest, the one that it is refused for first."""
    yield from _metadata(manifest.metadata, manifest.pool)
    spec = manifest.spec
    if reason := grammar.label_value(spec.instance_type):
        yield Refusal("spec.instanceType", reason)
    yield from _labels("spec.nodeLabels", spec.node_labels)
    for key in spec.node_labels:
        if grammar.reserved_namespace(key):
            yield Refusal(f"spec.nodeLabels[{key}]", RESERVED, "Forbidden")
        if reason := well_known.refused_label(key):
            yield Refusal(f"spec.nodeLabels[{key}]", f"remove {key}: {reason}", "Forbidden")
    yield from _annotations("spec.nodeAnnotations", spec.node_annotations)
    for key in spec.node_annotations:
        if reason := well_known.refused_annotation(key):
            yield Refusal(f"spec.nodeAnnotations[{key}]", f"remove {key}: {reason}", "Forbidden")
    if reason := grammar.node_annotations_size(spec.node_annotations):
        yield Refusal("spec.nodeAnnotations", reason)
    yield from _taints(spec.node_taints)
    yield from _texts(spec)
    if excess := affinity.find_excess(spec.affinity):
        yield Refusal(*excess)
    yield from list_size_faults(spec)
    yield from _racks(spec)


def _metadata(metadata: ManifestMetadata, name: str) -> Iterator[Refusal]:
    if metadata.name != name:
        yield Refusal("metadata.name", f"is {metadata.name!r}, but the subject names {name!r}")
    if reason := grammar.pool_name(metadata.name):
        yield Refusal("metadata.name", reason)
    yield from _labels("metadata.labels", metadata.labels)
    yield from _annotations("metadata.annotations", metadata.annotations)


def _labels(field: str, labels: Mapping[str, str]) -> Iterator[Refusal]:
    for key, value in labels.items():
        if reason := grammar.qualified_name(key) or grammar.label_value(value):
            yield Refusal(f"{field}[{key[:100]}]", reason)


def _annotations(field: str, annotations: Mapping[str, str]) -> Iterator[Refusal]:
    for key in annotations:
        # Annotation keys follow the rules for label keys, but their prefix may have capitals.
        if reason := grammar.qualified_name(key.lower()):
            yield Refusal(f"{field}[{key[:100]}]", reason)
    if reason := grammar.annotations_size(annotations):
        yield Refusal(field, reason)


def _taints(taints: tuple[Taint, ...]) -> Iterator[Refusal]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        field = f"spec.nodeTaints[{index}]"
        if reason := grammar.qualified_name(taint.key):
            yield Refusal(f"{field}.key", reason)
        if reason := grammar.taint_value(taint.value):
            yield Refusal(f"{field}.value", reason)
        if reason := grammar.taint_effect(taint.effect):
            yield Refusal(f"{field}.effect", reason)
        if (taint.key, taint.effect) in seen:
            yield Refusal(field, f"repeats the key {taint.key} with the effect {taint.effect}")
        if (taint.key, taint.effect) in _MANAGED:
            message = f"remove {taint.key}:{taint.effect}: {well_known.SET_BY_CONTROL_PLANE}"
            yield Refusal(field, message, "Forbidden")
        elif taint.key in well_known.TAINTS:
            message = f"remove {taint.key}:{taint.effect}: {well_known.SET_BY_KUBERNETES}"
            yield Refusal(field, message, "Forbidden")
        seen.add((taint.key, taint.effect))


def _texts(spec: NodePoolSpec) -> Iterator[Refusal]:
    """Yield a refusal for each text that is too long and has no grammar of its own."""
    texts = {"spec.region": spec.region}
    if spec.image is not None:
        texts |= {"spec.image.name": spec.image.name, "spec.image.kernel": spec.image.kernel}
    for field, text in texts.items():
        if reason := grammar.text_length(text or ""):
            yield Refusal(field, reason)


def _racks(spec: NodePoolSpec) -> Iterator[Refusal]:
    """Return the fault in a target in racks; an unknown type has no such fault."""
    is_known = spec.instance_type in INSTANCE_TYPES
    if spec.target_racks is not None and is_known and not spec.rack_size:
        message = f"give targetNodes instead: {spec.instance_type} does not come in racks"
        yield Refusal("spec.targetRacks", message)


def list_size_faults(spec: NodePoolSpec) -> Iterator[Refusal]:
    """Yield the faults in target, bounds and autoscaling; bounds count with autoscaling only."""
    if not spec.autoscaling:
        return
    least, most = spec.min_nodes, spec.max_nodes
    if least is None or most is None:
        field = "spec.minNodes" if least is None else "spec.maxNodes"
        yield Refusal(field, "is required while autoscaling is true")
    elif not least <= spec.target <= most:
        message = f"must lie between minNodes {least} and maxNodes {most} while autoscaling is true"
        yield Refusal("spec.targetNodes", message)
    instance = INSTANCE_TYPES.get(spec.instance_type)
    if instance is not None and instance.rack_size:
        yield Refusal("spec.autoscaling", f"must be false: {instance.id} comes in whole racks")
