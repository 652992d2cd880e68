"""Racks with too many unavailable Nodes: no new work begins on the other Nodes of such a rack.

A rack is all Nodes of a NodePool in one NVLink domain, if their instance type comes in whole racks.
A Node without a domain is in no rack. A Node is unavailable:

* while it has its own cause for a cordon, such as maintenance for which a command cordoned it;
* while it reboots;
* after its machine went to triage, until another machine has taken its place.
"""

from collections.abc import Iterator
from typing import NamedTuple

from immutables import Map

from lifecycle.node import Node
from nodepool.contract.keys import MachineKey, PoolKey
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.placement.racks import UNAVAILABLE_MAX, domain_of
from nodepool.state.maps import mark
from nodepool.state.values import replace


class Rack(NamedTuple):
    """A rack: its Nodes, its unavailable Nodes, and its machines that went to triage."""

    nodes: Map[MachineKey, bool] = Map()
    unavailable: Map[MachineKey, bool] = Map()
    lost: Map[MachineKey, bool] = Map()

    def is_down(self, size: int) -> bool:
        """Return whether more of its `size` Nodes are unavailable than may be."""
        missing = min(len(self.lost), max(0, size - len(self.nodes)))
        return len(self.unavailable) + missing > UNAVAILABLE_MAX


Racks = Map[PoolKey, Map[str, Rack]]
"""The racks of each NodePool that has racks, by NVLink domain."""


def is_unavailable(node: Node) -> bool:
    """Return whether a Node is unavailable for a cause of its own.

    A new Node that is being verified takes work meanwhile: it is cordoned only after that.
    """
    if node.exit.reason is RemovalReason.UNHEALTHY:
        return True
    return node.boot.number > 0 if node.restarts else bool(node.health.own_causes)


def awaits_cordon(node: Node | None) -> bool:
    """Return whether a Node that stays has joined a rack that is cordoned already."""
    if node is None or node.phase is not NodePhase.PRODUCTION:
        return False
    return bool(node.health.rack) and node.exit.reason is None


def update_racks(
    racks: Racks,
    nodes: Map[MachineKey, Node],
    key: MachineKey,
    seen: Node,
    size: int,
    *,
    is_lost: bool,
) -> tuple[Racks, Map[MachineKey, Node]]:
    """Return the racks and the Nodes after the Node `seen` has changed, or has left.

    size: how many Nodes are a rack.
    is_lost: whether its machine went to triage, if it left.
    """
    domain = domain_of(seen.topology)
    known = racks.get(seen.pool, Map())
    before = known.get(domain, Rack())
    rack = _with(before, key, nodes[key]) if key in nodes else _without(before, key, is_lost)
    for other, node in _find_turned(rack, size, nodes, domain):
        nodes = nodes.set(other, node)
    if rack == before:
        return racks, nodes
    if rack.nodes:
        return racks.set(seen.pool, known.set(domain, rack)), nodes
    rest = known.delete(domain)
    return (racks.set(seen.pool, rest) if rest else racks.delete(seen.pool)), nodes


def find_nodes_in_racks(racks: Racks, pool: PoolKey) -> Iterator[MachineKey]:
    """Yield the Nodes of a NodePool that are in a rack."""
    for rack in racks.get(pool, Map()).values():
        yield from rack.nodes


def _with(rack: Rack, key: MachineKey, node: Node) -> Rack:
    return Rack(
        mark(rack.nodes, key, is_in=True),
        mark(rack.unavailable, key, is_in=is_unavailable(node)),
        mark(rack.lost, key, is_in=False),
    )


def _without(rack: Rack, key: MachineKey, is_lost: bool) -> Rack:
    return Rack(
        mark(rack.nodes, key, is_in=False),
        mark(rack.unavailable, key, is_in=False),
        mark(rack.lost, key, is_in=is_lost),
    )


def _find_turned(
    rack: Rack, size: int, nodes: Map[MachineKey, Node], domain: str
) -> Iterator[tuple[MachineKey, Node]]:
    """Yield the Nodes of a rack that begin or cease to be cordoned for the others."""
    is_down = rack.is_down(size)
    for key in rack.nodes:
        node = nodes[key]
        named = domain if is_down and key not in rack.unavailable else ""
        if node.health.rack != named:
            yield key, replace(node, health=node.health._replace(rack=named))
