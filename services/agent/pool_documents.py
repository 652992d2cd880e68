"""Reads NodePools from the documents of the read model and of their cluster."""

from agent.agreement import SpecFault, read_spec
from agent.bus import Document, WantedPool
from agent.cluster import PoolObject
from agent.reading import UnreadableDocument, as_document, number, part, text, texts
from nodepool.contract.model import spec_document


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
