"""Stores the objects of one kind, merged from lists, watch events and own writes; pure.

Versions are compared as numbers, which Kubernetes allows for versions of one kind of object, see
https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
GONE_MAX: Final = 4_096
"""How many deletions by this program are remembered until a watch reports them too."""


class Kept(NamedTuple, Generic[T]):
    """An object: its uid, its version, and the value kept for it."""

    uid: str
    version: int
    value: T


Changed = Callable[[str, T | None, T | None], None]
"""Called with the key of an object, its old value and its new value; None if there is no object."""


class Store(Generic[T]):
    """The objects of one kind by key, never older than the writes of this program itself."""

    def __init__(self, changed: Changed[T]) -> None:
        self._changed = changed
        self._items: dict[str, Kept[T]] = {}
        self._gone: dict[str, None] = {}
        self._written: set[str] = set()
        self._newest = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> T | None:
        """Return the value kept for an object; None if there is no object."""
        kept = self._items.get(key)
        return None if kept is None else kept.value

    def items(self) -> Iterator[tuple[str, T]]:
        """Return all objects by key."""
        return ((key, kept.value) for key, kept in self._items.items())

    def begin_list(self) -> None:
        """Note that a list is requested: objects written from now on may be missing in the list."""
        self._written.clear()

    def lacking(self, listed: Mapping[str, Kept[T]], version: int) -> Sequence[T]:
        """Return the objects that `replace` removes with this list; none for a restored backup."""
        if version < self._newest:
            return ()
        return [
            kept.value
            for key, kept in self._items.items()
            if key not in listed and not (key in self._written and kept.version > version)
        ]

    def replace(self, listed: Mapping[str, Kept[T]], version: int) -> None:
        """Replace all objects with a list of this version.

        An object stays if it was written after the list was requested and is newer than the list. A
        version lower than a version seen before is from a restored backup: then no object stays.
        """
        is_older = version < self._newest
        if is_older:
            self._gone.clear()
        self._newest = version
        for key in [*self._items, *(key for key in listed if key not in self._items)]:
            old, new = self._items.get(key), listed.get(key)
            newer = 0 if old is None or is_older or key not in self._written else old.version
            if newer > version or (new is not None and newer > new.version):
                continue
            self._set(key, None if new is None or new.uid in self._gone else new)
        self._gone = {} if not self._written else self._gone
        self._written.clear()

    def add(self, listed: Mapping[str, Kept[T]], version: int) -> None:
        """Add a list of some objects of this version, unless the store has seen a version as new.

        An object that the list lacks stays until a watch says that the object is gone.
        """
        if version <= self._newest:
            return
        for key, kept in listed.items():
            if kept.uid not in self._gone:
                self.put(key, kept)

    def apply(self, key: str, uid: str, version: int, kept: Kept[T] | None) -> None:
        """Apply an event of a watch; `kept` is None if the object does not exist now."""
        self._newest = max(self._newest, version)
        old = self._items.get(key)
        if kept is None:
            self._gone.pop(uid, None)
            # If a newer object of this name exists already, the event is outdated.
            if old is not None and (old.uid == uid or old.version < version):
                self._set(key, None)
        elif uid not in self._gone and (old is None or old.version < version):
            self._set(key, kept)

    def put(self, key: str, kept: Kept[T]) -> None:
        """Store an object as the API server returned it after a write.

        If a watch is past that version and the object is missing, the object was deleted since.
        """
        old = self._items.get(key)
        if kept.version > (self._newest if old is None else old.version):
            self._written.add(key)
            self._set(key, kept)

    def remove(self, key: str, uid: str) -> None:
        """Remove an object that the API server has deleted."""
        self._gone[uid] = None
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        old = self._items.get(key)
        if old is not None and old.uid == uid:
            self._written.add(key)
            self._set(key, None)

    def _set(self, key: str, new: Kept[T] | None) -> None:
        old = self._items.pop(key, None)
        if new is not None:
            self._items[key] = new
        if old != new:
            self._changed(key, old and old.value, new and new.value)
