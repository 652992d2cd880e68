"""Machines that come in whole racks: from which racks a NodePool gets the Nodes that it lacks.

A rack consists of the machines of an instance type that share a value of the label `NVLINK_DOMAIN`,
their NVLink domain. Machines without the label form one domain, in which any `rack size` machines
are a rack.
Which types come in racks: https://docs.coreweave.com/platform/instances/about-instances.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from immutables import Map

NVLINK_DOMAIN: Final = "ds.coreweave.com/nvlink.domain"
"""The label of a machine that names its NVLink domain."""
UNAVAILABLE_MAX: Final = 2
"""How many Nodes of a rack may be unavailable before the other Nodes are cordoned."""
Counts = Map[str, int]
"""The number of machines of each domain; a domain without machines has no entry."""
NONE: Final[Mapping[str, int]] = MappingProxyType({})
"""No machine of any domain."""


class Delivery(NamedTuple):
    """A number of machines of one domain that complete racks there."""

    domain: str
    machines: int


def domain_of(labels: Mapping[str, str]) -> str:
    """Return the NVLink domain of a machine with these labels; empty if the label is missing."""
    return labels.get(NVLINK_DOMAIN, "")


def change_count(counts: Counts, domain: str, change: int) -> Counts:
    """Return the counts with `change`, which may be negative, added for a domain."""
    count = counts.get(domain, 0) + change
    if count:
        return counts.set(domain, count)
    return counts.delete(domain) if domain in counts else counts


def count_racks(size: int, counts: Iterable[int]) -> int:
    """Return how many racks there are, whole or in part, with so many machines of each domain."""
    return sum(-(-count // size) for count in counts)


def count_surplus(lengths: Iterable[int], wanted: int) -> Counter[int]:
    """Return how many racks of each length leave until `wanted` racks stay: the shortest ones.

    No more racks of a length leave, so that no longer rack leaves in the place of a shorter one.
    """
    shortest = sorted(lengths)
    return Counter(shortest[: max(0, len(shortest) - wanted)])


def lacking(
    size: int, racks: int, held: Mapping[str, int], leaving: Mapping[str, int] = NONE
) -> list[Delivery]:
    """Return the machines that complete the racks held in part; fullest first, then by domain.

    racks: how many racks are wanted. Of more racks, the fullest stay, so no other is completed.
    held, leaving: how many machines are held of each domain, and how many of those are given up.
    """
    stay = {domain: count - leaving.get(domain, 0) for domain, count in held.items()}
    parts = [Delivery(domain, -count % size) for domain, count in stay.items() if count % size]
    racks -= sum(count // size for count in stay.values())
    return sorted(parts, key=lambda part: (part.machines, part.domain))[: max(0, racks)]


def deliveries(
    size: int,
    goal: int,
    held: Mapping[str, int],
    free: Mapping[str, int],
    parts: Iterable[Delivery],
    offered: int,
) -> list[Delivery]:
    """Return how many free machines of each domain a NodePool can be given.

    goal: how many Nodes the NodePool may have in all.
    held, free: how many machines it has, and how many it could have, of each domain.
    parts: what completes the racks that it has in part; see `lacking`.
    offered: how many machines it is given at least, if they fit; the last may bring a whole rack.

    These racks come first, each only if all machines that it lacks, or that the goal leaves, are
    free in its own domain. Whole racks follow, up to the goal, by the names of their domains.
    """
    missing, given = goal - sum(held.values()), list[Delivery]()
    if missing <= 0:
        return given
    if size == len(free) == 1:  # A short way for the common case, which is taken in each turn.
        most = min(missing, offered)
        return [Delivery(domain, min(most, free[domain])) for domain in free if free[domain]]
    left = dict(free)
    for part in parts:
        count = min(part.machines, missing)
        if offered > 0 and 0 < count <= left.get(part.domain, 0):
            missing, offered = missing - count, offered - count
            left[part.domain] -= count
            given.append(Delivery(part.domain, count))
    # `-(-offered // size)` rounds up to whole racks.
    racks = min(goal // size - count_racks(size, held.values()), -(-offered // size))
    for domain in sorted(left):
        count = min(racks, left[domain] // size)
        if count > 0:
            racks -= count
            given.append(Delivery(domain, count * size))
    return given
