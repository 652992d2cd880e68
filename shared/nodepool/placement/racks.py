"""Machines that come in whole racks: from which racks a NodePool gets the Nodes that it lacks.

A rack consists of the machines of an instance type that share a value of the label `NVLINK_DOMAIN`,
their NVLink domain. Machines without the label form one domain, in which any `rack size` machines
are a rack.
Which types come in racks: https://docs.coreweave.com/platform/instances/about-instances.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from immutables import Map

NVLINK_DOMAIN: Final = "ds.coreweave.com/nvlink.domain"
"""The label of a machine that names its NVLink domain."""
UNAVAILABLE_MAX: Final = 2
"""How many Nodes of a rack may be unavailable before the other Nodes are cordoned."""
Counts = Map[str, int]
"""The number of machines of each domain; a domain without machines has no entry."""


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


def lacking(size: int, held: Mapping[str, int]) -> list[Delivery]:
    """Return the machines that complete the racks held in part; fullest first, then by domain."""
    parts = [Delivery(domain, -count % size) for domain, count in held.items() if count % size]
    return sorted(parts, key=lambda part: (part.machines, part.domain))


def deliveries(
    size: int, goal: int, held: Mapping[str, int], free: Mapping[str, int]
) -> list[Delivery]:
    """Return how many free machines of each domain a NodePool can be given.

    goal: how many Nodes the NodePool may have in all.
    held, free: how many machines it has, and how many it could have, of each domain.

    Racks that the NodePool has in part come first, each only if all machines that it lacks, or that
    the goal leaves, are free in its own domain. Whole racks follow, up to the goal, by the names of
    their domains.
    """
    missing, parts = goal - sum(held.values()), list[Delivery]()
    if missing <= 0:
        return parts
    if size == len(free) == 1:  # A short way for the common case, which is taken in each turn.
        return [Delivery(domain, min(missing, free[domain])) for domain in free if free[domain]]
    left = dict(free)
    for part in lacking(size, held):
        count = min(part.machines, missing)
        if 0 < count <= left.get(part.domain, 0):
            missing -= count
            left[part.domain] -= count
            parts.append(Delivery(part.domain, count))
    racks = goal // size - sum(-(-count // size) for count in held.values())
    for domain in sorted(left):
        count = min(missing, left[domain], max(0, racks) * size) // size * size
        if count > 0:
            missing -= count
            racks -= count // size
            parts.append(Delivery(domain, count))
    return parts
