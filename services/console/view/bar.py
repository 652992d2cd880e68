"""The bar of a NodePool or a fleet: its Nodes by state, as parts in colours."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its colour, its start, its number of Nodes, and what they are."""

    look: str
    start: int
    count: int
    about: str = ""


def build_bar(parts: Sequence[tuple[str, int, str]]) -> tuple[Part, ...]:
    """Return the parts of a bar that have at least one Node, in order."""
    found, start = list[Part](), 0
    for look, count, about in parts:
        if count > 0:
            found.append(Part(look, start, count, about))
            start += count
    return tuple(found)
