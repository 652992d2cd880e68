"""The Nodes and machines of a NodePool, and those that share its quota, parsed once per change."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.model import ReadModel
from gateway.parsed import Parsed
from nodepool.contract.documents import text
from nodepool.contract.keys import peer_name
from nodepool.explanation.documents import MachineFacts, machine_facts, node_facts, own_facts
from nodepool.explanation.facts import Facts, Peer
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.peers import peer_of

PEERS_MAX: Final = 20_000
"""The most NodePools that are kept; beyond that, all are parsed again."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The stored content of a NodePool, and the values parsed from it."""

    content: bytes
    nodes: tuple[bytes, ...]
    name: str
    instance_type: str
    peer: Peer


class Peers:
    """Keeps what was parsed: an explanation needs all NodePools of its organisation."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}
        self._nodes = Parsed(node_facts)
        self._machines = Parsed(machine_facts)

    def nodes(self, model: ReadModel, org: str, cluster: str, pool: str) -> Iterable[NodeFacts]:
        """Return the Nodes of a NodePool."""
        contents = model.grouped("nodes", org, pool, f"{cluster}.")
        return self._nodes.list((org, cluster, pool), contents)

    def machines(self, model: ReadModel, zone: str, instance_type: str) -> Iterable[MachineFacts]:
        """Return the machines of a type in a zone."""
        contents = model.grouped("machines", zone, instance_type)
        return self._machines.list((zone, instance_type), contents)

    def list(self, model: ReadModel, org: str, cluster: str, own: Facts) -> list[Peer]:
        """Return the other NodePools of the organisation of the same type in the same zone."""
        return [
            known.peer
            for known in self._near(model, org, cluster, own.name)
            if known.instance_type == own.instance_type
        ]

    def _near(self, model: ReadModel, org: str, cluster: str, own: str) -> Iterator[_Known]:
        zones = {
            key: text(json.loads(content), "spec", "zone")
            for key, content in model.contents("clusters", org)
        }
        for key, content in model.contents("nodepools", org):
            where, _, name = key.partition(".")
            if zones.get(where) == zones.get(cluster) and (where, name) != (cluster, own):
                yield self._read(model, org, key, content)

    def _read(self, model: ReadModel, org: str, key: str, content: bytes) -> _Known:
        where, _, name = key.partition(".")
        known = self._known.get((org, key))
        if (
            known is None
            or known.content != content
            or known.nodes != tuple(model.grouped("nodes", org, known.name, f"{where}."))
        ):
            document = json.loads(content)
            of = text(document, "metadata", "name")
            nodes = tuple(model.grouped("nodes", org, of, f"{where}."))
            own = own_facts(document, self.nodes(model, org, where, of))
            peer = peer_of(peer_name(where, name), own)
            known = _Known(content, nodes, of, text(document, "spec", "instanceType"), peer)
            if len(self._known) >= PEERS_MAX:
                self._known.clear()
            self._known[org, key] = known
        return known
