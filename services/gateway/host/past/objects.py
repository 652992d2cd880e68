"""The objects of a moment that one organisation may see, and those that explain its NodePools."""

from collections.abc import Iterable, Iterator
from json import loads
from typing import Final

from gateway.host.past.frames import Kept
from gateway.host.reading import group_of, place_in
from nodepool.client.objects import document_of
from nodepool.client.past.objects import PastObjects
from nodepool.contract.buckets import Bucket
from nodepool.contract.documents import text

OWN: Final[tuple[Bucket, ...]] = ("nodepools", "nodes", "quotas", "clusters")
"""The buckets with the objects of organisations."""


def kept_objects(objects: PastObjects, org: str) -> Iterator[Kept]:
    """Yield the objects of an organisation, and the machines of its zones of the types it uses."""
    own = [kept for bucket in OWN for kept in _read(objects, bucket, org)]
    yield from own
    zones, types = _values(own, "clusters", "zone"), _values(own, "nodepools", "instanceType")
    for zone in sorted(zones):
        for kept in _read(objects, "capacity", zone):
            if kept.key in types:
                yield kept
        for kept in _read(objects, "machines", zone):
            if kept.group in types:
                yield kept


def _values(own: Iterable[Kept], bucket: Bucket, name: str) -> set[str]:
    """Return the values of a field of the specs of the objects of a bucket."""
    found = (text(loads(each.content), "spec", name) for each in own if each.bucket == bucket)
    return set(filter(None, found))


def _read(objects: PastObjects, bucket: Bucket, owner: str) -> Iterator[Kept]:
    for entry in objects.entries(bucket, owner):
        document = document_of(entry)
        if document is not None:
            _, key = place_in(bucket, entry.subject)
            group = group_of(bucket, document)
            yield Kept(bucket, owner, key, entry.position, group, entry.content)
