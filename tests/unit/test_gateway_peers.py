"""The NodePools that share quota with another one, as the gateway remembers them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.model import Held, ReadModel
from gateway.peers import Peers
from nodepool.explanation.documents import POOL_LABEL, facts
from nodepool.explanation.node_facts import NodeFacts
from support.constants import A100, H100, ZONE

NOW = datetime(2026, 11, 23, tzinfo=UTC)
OWN = facts({"metadata": {"name": "own"}, "spec": {"instanceType": H100}})


class Shown:
    """A read model into which objects are written one after the other."""

    def __init__(self) -> None:
        self.model, self._revision = ReadModel(), 0
        self.put("clusters", "prod", {"spec": {"zone": ZONE}})
        self.put("clusters", "far", {"spec": {"zone": "US-WEST-01A"}})

    def put(self, bucket: Any, key: str, document: object, group: str = "") -> None:
        """Write an object."""
        self._revision += 1
        held = Held(self._revision, self._revision, json.dumps(document).encode(), group)
        self.model.take(bucket, "acme", key, held, NOW)

    def put_pool(self, cluster: str, name: str, target: int, kind: str = H100) -> None:
        """Write a NodePool."""
        spec = {"instanceType": kind, "targetNodes": target}
        self.put("nodepools", f"{cluster}.{name}", {"metadata": {"name": name}, "spec": spec})

    def put_node(self, name: str, pool: str, **status: object) -> None:
        """Write a Node of a NodePool."""
        labels = {"name": name, "labels": {POOL_LABEL: pool}}
        self.put("nodes", f"prod.{name}", {"metadata": labels, "status": status}, pool)


def test_the_others_of_the_type_and_zone_are_found_and_read_again_once_they_change() -> None:
    shown, peers = Shown(), Peers()
    shown.put_pool("prod", "own", 1)
    shown.put_pool("prod", "near", 2)
    shown.put_pool("prod", "other", 3, A100)
    shown.put_pool("far", "away", 4)

    first = peers.list(shown.model, "acme", "prod", OWN)
    again = peers.list(shown.model, "acme", "prod", OWN)

    assert [(each.name, each.target) for each in first] == [("prod/near", 2)]
    assert again[0] is first[0]

    # when the NodePool changes, then it is read again
    shown.put_pool("prod", "near", 5)
    assert peers.list(shown.model, "acme", "prod", OWN)[0].target == 5

    # and when one of its Nodes changes, too
    before = peers.list(shown.model, "acme", "prod", OWN)[0]
    conditions = [{"type": "CWNodeRemoval", "status": "True", "reason": "ScaleDown"}]
    shown.put_node("a", "near", phase="production", conditions=conditions)
    after = peers.list(shown.model, "acme", "prod", OWN)[0]
    assert (before.leaving, after.leaving) == (0, 1)


def test_the_nodes_of_a_nodepool_are_read_again_only_if_they_have_changed() -> None:
    shown, peers = Shown(), Peers()
    for name, pool in (("a", "own"), ("b", "own"), ("c", "other")):
        shown.put_node(name, pool, phase="production")

    first = {each.name: each for each in peers.nodes(shown.model, "acme", "prod", "own")}
    shown.put_node("a", "own", phase="cordoned")
    again = {each.name: each for each in peers.nodes(shown.model, "acme", "prod", "own")}

    assert sorted(first) == sorted(again) == ["a", "b"]
    assert (first["a"].phase, again["a"].phase) == ("production", "cordoned")
    assert again["b"] is first["b"]


def test_only_so_many_parsed_nodes_are_kept_those_of_the_nodepools_that_were_asked_for_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given room for two Nodes, and three NodePools of a Node each
    monkeypatch.setattr("gateway.parsed.OBJECTS_MAX", 2)
    shown, peers = Shown(), Peers()
    for pool in ("first", "second", "third"):
        shown.put_node(pool, pool)

    def read(pool: str) -> NodeFacts:
        (node,) = peers.nodes(shown.model, "acme", "prod", pool)
        return node

    # when all are asked for, then the one that was asked for first is parsed again
    first, second, third = read("first"), read("second"), read("third")

    assert read("third") is third
    assert read("second") is second
    assert read("first") is not first
