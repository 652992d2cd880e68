"""The stored state of a NodePool, from its object in the read model."""

from datetime import datetime

from nodepool.client.manifests import ManifestError, parse_manifest
from nodepool.client.objects import Document
from nodepool.contract.conditions import Validated
from nodepool.contract.documents import field, items, text
from nodepool.contract.events import NodePoolValidated
from nodepool.contract.model import API_VERSION, KIND


def stored_in(document: Document, org: str, cluster: str) -> NodePoolValidated | None:
    """Return what an object says of the desired state; None if the object cannot be read.

    The object names neither the zone nor what an invalid spec is wrong about. Its version is that
    of its newest status, which is later than that of its spec.
    """
    metadata = field(document, "metadata")
    verdict = next(filter(_is_verdict, items(document, "status", "conditions")), None)
    try:
        command = parse_manifest(_manifest_of(document), "the NodePool")
        return NodePoolValidated(
            org=org,
            cluster=cluster,
            pool=command.metadata.name,
            uid=text(metadata, "uid"),
            zone="",
            generation=int(text(metadata, "generation")),
            version=int(text(metadata, "resourceVersion")),
            created=datetime.fromisoformat(text(metadata, "creationTimestamp")),
            labels=command.metadata.labels,
            annotations=command.metadata.annotations,
            spec=command.spec,
            reason=Validated(text(verdict, "reason") or Validated.VALID),
            message=text(verdict, "message"),
        )
    except (ManifestError, ValueError):  # Another program may have written the object.
        return None


def _is_verdict(condition: object) -> bool:
    return text(condition, "type") == Validated.__name__


def _manifest_of(document: Document) -> Document:
    metadata = field(document, "metadata")
    given = {name: field(metadata, name) for name in ("name", "labels", "annotations")}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {name: value for name, value in given.items() if value},
        "spec": field(document, "spec"),
    }
