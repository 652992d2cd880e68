"""The objects of the read model as they should be stored, made from the newest state."""

from collections.abc import Iterator
from typing import Generic

from pydantic_core import to_json

from nodepool.contract.exceptions import NO_FAILURE
from nodepool.contract.log import LogId
from nodepool.nats.objects.stored_objects import (
    Finding,
    ObjectKey,
    StoredObject,
    examine,
    is_same_document,
    replaces,
)
from nodepool.service import I, Object, Projection, S


class Rendering(Generic[S, I]):
    """A projection of the newest state.

    log: the identity of the log whose positions are the versions of the objects.
    """

    def __init__(self, projection: Projection[S, I], log: LogId) -> None:
        self.log = log
        self._projection = projection
        self._state: S | None = None
        self._committed = 0

    @property
    def buckets(self) -> tuple[str, ...]:
        """The buckets of the projection."""
        return self._projection.buckets

    @property
    def committed(self) -> int:
        """The position up to which the state is committed."""
        return self._committed

    def update(self, state: S, committed: int) -> None:
        """Store the newest state and the position up to which it is committed."""
        self._state, self._committed = state, committed

    def list_touched(self, message: I) -> Iterator[ObjectKey]:
        """Yield the keys of the objects that a message may have changed in the state."""
        if self._state is not None:
            yield from self._projection.touched(self._state, message)

    def keys(self) -> Iterator[ObjectKey]:
        """Yield the key of every object that the state has."""
        if self._state is not None:
            for bucket in self.buckets:
                for key in self._projection.keys(self._state, bucket):
                    yield bucket, key

    def build_stored_object(self, key: ObjectKey) -> tuple[StoredObject, Object | None]:
        """Return how an object should be stored, and the object; raise errors of the projection."""
        assert self._state is not None, "an object is one of a state"
        item = self._projection.get(self._state, *key)
        version = self._committed if item is None else item.version
        return StoredObject(0, version, item is None, self._projection.rendering, self.log), item

    def document(self, item: Object | None) -> bytes:
        """Return an object as JSON, b"" if it is deleted; raise the errors of the projection."""
        return b"" if item is None else to_json(self._projection.render(item))

    def differs(self, key: ObjectKey, stored: StoredObject) -> bool:
        """Return whether an object should replace its stored version."""
        try:
            return replaces(self.build_stored_object(key)[0], stored)
        except NO_FAILURE:
            raise
        except Exception:  # The object is parked when it must be written.
            return True

    def examine(
        self, key: ObjectKey, stored: StoredObject, content: bytes, log_end: int
    ) -> Finding:
        """Return the Finding for a stored object; compare its content too."""
        try:
            wanted, item = self.build_stored_object(key)
            if item is not None and wanted == stored._replace(position=0):
                same = is_same_document(content, self.document(item))
                return Finding.RIGHT if same else Finding.WRONG
        except NO_FAILURE:
            raise
        except Exception:  # The object is parked when it is written.
            return Finding.RIGHT
        return examine(stored, wanted, self._committed, log_end)
