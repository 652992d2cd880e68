"""The read model in memory: what the writer of the read model would have stored, by subject."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from nodepool.client.objects import Document, Object, document_of
from nodepool.contract.buckets import Bucket
from nodepool.contract.log import Entry, LogId
from nodepool.nats.objects.rendering import Rendering
from nodepool.nats.objects.stored_objects import ObjectKey, key_of_object, subject_of_object
from nodepool.service import Projection

NEVER: Final = datetime.min.replace(tzinfo=UTC)
"""The time of an object that was never stored."""


class PastObjects:
    """The objects of a projection of one state.

    state: the state up to `position` of the log `log`.
    """

    def __init__(
        self, projection: Projection[Any, Any], state: object, log: LogId, position: int
    ) -> None:
        self._rendering = Rendering(projection, log)
        self._rendering.update(state, position)

    def get(self, bucket: Bucket, subject: str) -> Document | None:
        """Return the object on a subject of a bucket; None if there was none."""
        found = self._read(key_of_object(bucket, subject))
        return found.document if found is not None else None

    def list(self, bucket: Bucket, subjects: str) -> Iterator[Object]:
        """Yield each object whose subject begins with `subjects`, by the rest of its subject."""
        for key in self._rendering.keys():  # noqa: SIM118  # It is no mapping.
            if key[0] == bucket and (subject := subject_of_object(key)).startswith(subjects):
                found = self._read(key)
                if found is not None:
                    yield Object(subject[len(subjects) :], found.document, found.position)

    def entries(self, bucket: Bucket, owner: str) -> Iterator[Entry]:
        """Yield each object of an owner, the first part of its key, as a bucket would hold it."""
        subjects = f"$KV.{bucket}.{owner}."
        for key in self._rendering.keys():  # noqa: SIM118  # It is no mapping.
            if key[0] == bucket and subject_of_object(key).startswith(subjects):
                entry = self._entry(key)
                if entry is not None:
                    yield entry

    def _read(self, key: ObjectKey) -> Object | None:
        entry = self._entry(key)
        return Object(key[1], document_of(entry), entry.position) if entry is not None else None

    def _entry(self, key: ObjectKey) -> Entry | None:
        """Return an object as bytes, so that a reader sees what it would have read from the bus."""
        stored, item = self._rendering.build_stored_object(key)
        if item is None:
            return None
        content = self._rendering.document(item)
        return Entry(stored.version, NEVER, subject_of_object(key), content, {})
