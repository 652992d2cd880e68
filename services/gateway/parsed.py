"""What was parsed from groups of objects: each object is parsed once per change."""

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
OBJECTS_MAX: Final = 20_000
"""The most objects that are kept, some 10 MB: those of the groups that were asked for last."""
GROUPS_MAX: Final = 20_000
"""The most groups that are kept."""


class Parsed(Generic[T]):
    """Keeps the objects of groups as `read` makes them from JSON."""

    def __init__(self, read: Callable[[object], T]) -> None:
        self._read = read
        self._groups: dict[Hashable, dict[bytes, T]] = {}
        self._count = 0

    def list(self, group: Hashable, contents: Iterable[bytes]) -> Iterable[T]:
        """Return the objects of a group, which has these contents now."""
        known = self._groups.pop(group, {})
        self._count -= len(known)
        found = {
            each: known[each] if each in known else self._read(json.loads(each))
            for each in contents
        }
        self._groups[group] = found
        self._count += len(found)
        while self._count > OBJECTS_MAX or len(self._groups) > GROUPS_MAX:
            self._count -= len(self._groups.pop(next(iter(self._groups))))
        return found.values()
