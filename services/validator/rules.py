"""What is refused at once, and what a stored NodePool is judged by: one function for each rule."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from nodepool.contract import affinity, grammar
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES, InstanceType, offered
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.conditions import HEALTHY, Validated
from nodepool.contract.model import ComputeClass, ManifestMetadata, NodePoolSpec, Taint

RESERVED = "Namespaces `*.coreweave.cloud` or `*.coreweave.com` are not allowed."
RefusalReason = Literal["Invalid", "Forbidden", "NotFound", "Conflict"]
Fault = Literal["", "InstanceType", "Zone", "Settings"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command changes nothing: the field to mend, and how."""

    field: str
    message: str
    reason: RefusalReason = "Invalid"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a stored configuration is worth: a Validated reason, the kind of fault, a sentence."""

    reason: Validated
    message: str
    fault: Fault = ""


VALID = Verdict(Validated.VALID, HEALTHY[Validated.VALID])


def malformed(manifest: ApplyNodePool) -> Refusal | None:
    """The first fault that makes a manifest unusable, whatever is stored."""
    return next(_malformed(manifest), None)


def _malformed(manifest: ApplyNodePool) -> Iterator[Refusal]:
    yield from _metadata(manifest.metadata, manifest.pool)
    spec = manifest.spec
    yield from _labels("spec.nodeLabels", spec.node_labels)
    for key in spec.node_labels:
        if grammar.reserved_namespace(key):
            yield Refusal(f"spec.nodeLabels[{key}]", RESERVED, "Forbidden")
    yield from _annotations("spec.nodeAnnotations", spec.node_annotations)
    yield from _taints(spec.node_taints)
    yield from sized(spec)


def _metadata(metadata: ManifestMetadata, name: str) -> Iterator[Refusal]:
    if metadata.name != name:
        yield Refusal("metadata.name", f"is {metadata.name!r}, but the subject names {name!r}")
    if reason := grammar.dns1123_subdomain(metadata.name):
        yield Refusal("metadata.name", reason)
    yield from _labels("metadata.labels", metadata.labels)
    yield from _annotations("metadata.annotations", metadata.annotations)


def _labels(field: str, labels: Mapping[str, str]) -> Iterator[Refusal]:
    for key, value in labels.items():
        if reason := grammar.qualified_name(key) or grammar.label_value(value):
            yield Refusal(f"{field}[{key[:100]}]", reason)


def _annotations(field: str, annotations: Mapping[str, str]) -> Iterator[Refusal]:
    for key in annotations:
        # Kubernetes allows capitals in an annotation's prefix and nothing else beyond a label key.
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
        seen.add((taint.key, taint.effect))


def sized(spec: NodePoolSpec) -> Iterator[Refusal]:
    """Faults between the target, its bounds and autoscaling; the bounds mean nothing without it."""
    if not spec.autoscaling:
        return
    least, most = spec.min_nodes, spec.max_nodes
    if least is None or most is None:
        field = "spec.minNodes" if least is None else "spec.maxNodes"
        yield Refusal(field, "is required while autoscaling is true")
    elif not least <= spec.target_nodes <= most:
        told = f"must lie between minNodes {least} and maxNodes {most} while autoscaling is true"
        yield Refusal("spec.targetNodes", told)
    kind = INSTANCE_TYPES.get(spec.instance_type)
    if kind is not None and kind.rack_size:
        yield Refusal("spec.autoscaling", f"must be false: {kind.id} comes in whole racks")


def immutable(before: NodePoolSpec, after: NodePoolSpec) -> Refusal | None:
    """What may never change once a NodePool exists."""
    if before.instance_type != after.instance_type:
        return Refusal("spec.instanceType", "InstanceType cannot be changed")
    if before.compute_class is not after.compute_class:
        return Refusal("spec.computeClass", "ComputeClass cannot be changed")
    return None


def verdict(spec: NodePoolSpec, zone: str) -> Verdict:
    """Whether a stored configuration can ever be delivered in its cluster's zone."""
    kind = INSTANCE_TYPES.get(spec.instance_type)
    if kind is None:
        told = f"instance type {spec.instance_type} is not a known instance type"
        return Verdict(Validated.INVALID, told, "InstanceType")
    if spec.region is not None and spec.region != zone:
        told = f"region {spec.region} is not the cluster's zone {zone}"
        return Verdict(Validated.INVALID, told, "Zone")
    if not offered(kind.id, zone):
        told = f"instance type {kind.id} is not offered in zone {zone}"
        return Verdict(Validated.INVALID, told, "Zone")
    told = next(_undeliverable(spec, kind, zone), "")
    return Verdict(Validated.INVALID, told, "Settings") if told else VALID


def _undeliverable(spec: NodePoolSpec, kind: InstanceType, zone: str) -> Iterator[str]:
    if kind.superchip and spec.compute_class is ComputeClass.SPOT:
        yield f"computeClass spot is not offered for the Superchip instance type {kind.id}"
    if kind.rack_size and spec.target_nodes % kind.rack_size:
        yield (
            f"targetNodes {spec.target_nodes} is not a multiple of {kind.rack_size}, "
            f"the Nodes of one rack of {kind.id}"
        )
    if spec.affinity is None:
        return
    if reason := affinity.fault(spec.affinity):
        yield reason
        return
    labels = affinity.machine_labels(kind, ZONES[zone])
    if reason := affinity.satisfiable(spec.affinity, labels, affinity.TOPOLOGY_KEYS):
        yield reason
