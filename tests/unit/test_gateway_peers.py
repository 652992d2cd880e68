"""The NodePools that share quota with another one, as the gateway remembers them."""

import json
from datetime import UTC, datetime
from typing import Any

from gateway.model import Held, ReadModel
from gateway.peers import Peers
from nodepool.explanation.documents import POOL_LABEL, facts
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
