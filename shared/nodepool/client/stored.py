"""NodePools as documents: as the log stores a NodePool, and as a command wants it."""

from nodepool.client.objects import Document
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.events import NodePoolValidated
from nodepool.contract.model import API_VERSION, FINALIZER, KIND, spec_document
from nodepool.contract.moments import rfc3339


def stored_document(stored: NodePoolValidated) -> Document:
    """Return the NodePool as it was stored, without its status.

    If a user applies the document again, it is refused if the NodePool has changed since.
    """
    metadata: dict[str, object] = {
        "name": stored.pool,
        "uid": stored.uid,
        "generation": stored.generation,
        "resourceVersion": str(stored.version),
        "creationTimestamp": rfc3339(stored.created),
        "finalizers": [FINALIZER],
    }
    return _document(metadata, stored)


def desired_document(command: ApplyNodePool) -> Document:
    """Return the NodePool as a command wants it, without the fields that the control plane sets."""
    return _document({"name": command.metadata.name}, command)


def _document(metadata: dict[str, object], source: NodePoolValidated | ApplyNodePool) -> Document:
    given = source if isinstance(source, NodePoolValidated) else source.metadata
    for field, values in (("labels", given.labels), ("annotations", given.annotations)):
        if values:
            metadata[field] = dict(values)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec_document(source.spec),
    }
