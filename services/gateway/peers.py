"""The NodePools that share quota and machines with a NodePool, each parsed once per change."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gateway.model import ReadModel
from nodepool.contract.documents import text
from nodepool.contract.keys import peer_name
from nodepool.explanation.documents import read_peer
from nodepool.explanation.facts import Facts, Peer

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
    """Keeps parsed NodePools: an explanation needs all NodePools of its organisation."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}

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
            or known.nodes != self._nodes(model, org, where, known.name)
        ):
            document = json.loads(content)
            of = text(document, "metadata", "name")
            nodes = self._nodes(model, org, where, of)
            peer = read_peer(peer_name(where, name), document, map(json.loads, nodes))
            known = _Known(content, nodes, of, text(document, "spec", "instanceType"), peer)
            if len(self._known) >= PEERS_MAX:
                self._known.clear()
            self._known[org, key] = known
        return known

    def _nodes(self, model: ReadModel, org: str, cluster: str, pool: str) -> tuple[bytes, ...]:
        return tuple(model.grouped("nodes", org, pool, f"{cluster}."))
