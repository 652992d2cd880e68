"""The chain of manifests: where it ends, and whether a manifest continues it."""

from collections.abc import Iterator
from typing import NamedTuple

from nodepool.archive.manifests import Identity, Manifest, digest_of


class Head(NamedTuple):
    """The end of a chain.

    last: the position of the last message in the archive.
    sha256: the digest of the last manifest; of the identity while the archive has no manifest.
    ended: when the log stored the last message, in ISO 8601; empty while there is none.
    """

    last: int
    sha256: str
    ended: str = ""


def head_of_identity(identity: Identity, content: bytes) -> Head:
    """Return the head of an archive without segments."""
    return Head(identity.first - 1, digest_of(content))


def head_of_manifest(manifest: Manifest, content: bytes) -> Head:
    """Return the head of a chain that ends with a manifest."""
    return Head(manifest.last, digest_of(content), manifest.ended)


def faults_of(head: Head, manifest: Manifest, log: str) -> Iterator[str]:
    """Yield why a manifest does not continue a chain, each fault as one line.

    log: the log that the archive holds.
    """
    if manifest.log != log:
        yield f"is of the log {manifest.log}, and the archive holds {log}"
    if manifest.first > head.last + 1:
        missing = f"positions {head.last + 1} to {manifest.first - 1} are missing"
        yield f"begins at {manifest.first}: {missing}"
    if manifest.first <= head.last:
        last = min(head.last, manifest.last)
        yield f"begins at {manifest.first}: positions up to {last} are in the archive twice"
    if manifest.previous != head.sha256:
        yield "names another manifest before it than the archive has: one was changed or removed"
    if manifest.count != manifest.last - manifest.first + 1:
        yield f"counts {manifest.count} messages from {manifest.first} to {manifest.last}"
