"""The zones and clusters of Nodes, and the widespread silences in them.

A widespread silence makes no Node unhealthy; `nodepool.contract.health` says which silence is so.
"""

from collections.abc import Iterator
from typing import NamedTuple

from immutables import Map

from nodepool.contract.health import is_widespread
from nodepool.contract.keys import MachineKey


class Area(NamedTuple):
    """The Nodes of a zone, or of a cluster, that have joined their cluster.

    nodes: the number of Nodes.
    silent: the Nodes that are silent.
    is_silent: whether their silence is widespread.
    """

    nodes: int = 0
    silent: Map[MachineKey, bool] = Map()
    is_silent: bool = False


Areas = Map[str, Area]
"""The zones and the clusters that have Nodes, by their keys."""


class Standing(NamedTuple):
    """The areas that contain a Node, and whether the Node is silent."""

    areas: tuple[str, ...]
    is_silent: bool


def move_node(
    areas: Areas, key: MachineKey, before: Standing | None, after: Standing | None
) -> tuple[Areas, frozenset[str]]:
    """Return the areas after a Node changed, and the areas whose silence turned.

    A silence turns when it becomes widespread, and when it ceases to be widespread.
    before, after: None if the Node does not count.
    """
    turned = set()
    for name in sorted({*(before.areas if before else ()), *(after.areas if after else ())}):
        known = areas.get(name, Area())
        area = _without(known, key) if before and name in before.areas else known
        area = _with(area, key, after) if after and name in after.areas else area
        is_silent = is_widespread(len(area.silent), area.nodes, already=area.is_silent)
        area = area._replace(is_silent=is_silent)
        areas = areas.set(name, area) if area.nodes else areas.delete(name)
        if area.is_silent is not known.is_silent:
            turned.add(name)
    return areas, frozenset(turned)


def find_silent(areas: Areas, names: frozenset[str]) -> Iterator[MachineKey]:
    """Yield the silent Nodes of these areas, each once, in the order of their names."""
    yield from sorted({key for name in names for key in areas.get(name, Area()).silent})


def is_excused(areas: Areas, names: tuple[str, ...]) -> bool:
    """Return whether the silence of one of these areas is widespread."""
    return any(areas.get(name, Area()).is_silent for name in names)


def _without(area: Area, key: MachineKey) -> Area:
    silent = area.silent.delete(key) if key in area.silent else area.silent
    return area._replace(nodes=area.nodes - 1, silent=silent)


def _with(area: Area, key: MachineKey, standing: Standing) -> Area:
    silent = area.silent.set(key, True) if standing.is_silent else area.silent
    return area._replace(nodes=area.nodes + 1, silent=silent)
