"""Reads NodePools from the documents of the read model and of their cluster."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.reading import Document, UnreadableDocument, as_document, number, part, text, texts
from nodepool.contract.decode import value_in
from nodepool.contract.log import LogId
from nodepool.contract.model import NodePoolSpec, spec_document

LABELS: Final = "metadata.labels"
"""The field name that stands for the labels of a NodePool; all other fields are in its spec."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log from which the read model is built.

    id: its identity.
    cluster: the uid of the Kubernetes cluster; empty if it is not known.
    end: the position of its newest message, as far as known. Before an agreement with a higher
      position is compared, read it again: the log may have been restored from a backup.
    start: the position up to which the read model is known to be complete: the position of the
      newest message when the read model was listed, or of the newest object received since.
    """

    id: LogId
    end: int
    start: int = 0
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class WantedPool:
    """A NodePool of the read model.

    name, uid: its name, and its uid on the bus.
    generation: of its spec on the bus.
    version: its `resourceVersion`.
    deleting: whether it is being deleted.
    spec: as `nodepool.contract.model.spec_document` writes it.
    labels, annotations: its labels and annotations.
    status: its status in the read model.
    """

    name: str
    uid: str
    generation: int
    version: str
    spec: Document
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Document = field(default_factory=dict)


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
class SpecFault:
    """Why the spec of an object is invalid: the field, as in a manifest, and one sentence."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def read_spec(document: Document) -> NodePoolSpec | SpecFault:
    """Return the spec of an object, or the fault that makes it invalid; raise nothing."""
    try:
        read = value_in(NodePoolSpec, json.dumps(document))
    except (TypeError, ValueError, RecursionError):
        return SpecFault("spec", "contains a value that JSON lacks")
    if isinstance(read, NodePoolSpec):
        return read
    field, message = read
    return SpecFault(f"spec.{field}" if field else "spec", message)


def fields_of(spec: Document, labels: Mapping[str, str]) -> dict[str, object]:
    """Return all compared fields of a NodePool, by name."""
    return {**spec, LABELS: dict(labels)} if labels else dict(spec)


def take_fields(
    raw: Mapping[str, object], other: Mapping[str, object], names: frozenset[str]
) -> dict[str, object]:
    """Return the fields of `raw`, with the named fields taken from `other`."""
    others = {name: other[name] for name in names if name in other}
    return {name: value for name, value in raw.items() if name not in names} | others


def merge_patch(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Return the JSON merge patch (RFC 7386) that turns `before` into `after`."""
    patch: dict[str, object] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := merge_patch(old, value):
                patch[name] = inner
        elif old != value or type(old) is not type(value):
            patch[name] = value
    return patch


def wanted_pool(document: Document, name: str) -> WantedPool:
    """Return a NodePool of the read model by this name; raise UnreadableDocument if invalid."""
    document = as_document(document, "the object")
    metadata, spec, status = (part(document, field) for field in ("metadata", "spec", "status"))
    read = read_spec(spec)
    if isinstance(read, SpecFault):
        raise UnreadableDocument(read.field, "as the product documents it", spec)
    return WantedPool(
        name=name,
        uid=text(metadata, "uid", None),
        generation=number(metadata, "generation"),
        version=text(metadata, "resourceVersion"),
        spec=spec_document(read),
        deleting=metadata.get("deletionTimestamp") is not None,
        labels=texts(metadata, "labels"),
        annotations=texts(metadata, "annotations"),
        status=status,
    )


def pool_object(document: Document) -> PoolObject:
    """Return a NodePool of a Kubernetes cluster; raise UnreadableDocument if it is invalid.

    Its spec may be of any content: people write it, and the comparison says what is wrong with it.
    """
    document = as_document(document, "the object")
    metadata, status = part(document, "metadata"), part(document, "status")
    finalizers = metadata.get("finalizers") or ()
    if not isinstance(finalizers, list | tuple):
        raise UnreadableDocument("finalizers", "a list", finalizers)
    if not all(isinstance(each, str) for each in finalizers):
        raise UnreadableDocument("finalizers", "a list of texts", finalizers)
    return PoolObject(
        name=text(metadata, "name", None),
        uid=text(metadata, "uid", None),
        generation=number(metadata, "generation"),
        version=text(metadata, "resourceVersion"),
        spec=part(document, "spec"),
        status=status,
        labels=texts(metadata, "labels"),
        annotations=texts(metadata, "annotations"),
        finalizers=tuple(finalizers),
        deleting=metadata.get("deletionTimestamp") is not None,
        created=text(metadata, "creationTimestamp"),
        deleted=text(metadata, "deletionTimestamp"),
    )
