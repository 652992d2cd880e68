"""Change one entry of a persistent map."""

from typing import TypeVar

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")


def put(values: Map[K, V], key: K, value: V | None) -> Map[K, V]:
    """Return the map with this value of a key, or without the key if the value is None.

    Return the same map if the entry is the same object already.
    """
    if value is None:
        return values.delete(key) if key in values else values
    return values if values.get(key) is value else values.set(key, value)


def mark(keys: Map[K, bool], key: K, is_in: bool) -> Map[K, bool]:
    """Return the map, which stands for a set, with this key or without it."""
    return put(keys, key, True if is_in else None)
