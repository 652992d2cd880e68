"""NodePools of tests, applied with kubectl, and gone after them."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.plane import Plane, node_pool

NAME_MAX = 40


def manifest(name: str, target: object = 1, **spec: object) -> str:
    """A NodePool as `kubectl apply -f` takes it."""
    return json.dumps(node_pool(name, targetNodes=target, **spec))


def name_for(request: pytest.FixtureRequest) -> str:
    """A name for the NodePool of one test, which no other test has."""
    words = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_"))
    return words[:NAME_MAX].strip("-")


def apply(cluster: Cluster, name: str, target: int = 0) -> None:
    """Applies a NodePool with kubectl."""
    cluster.kubectl("apply", "-f", "-", given=manifest(name, target))


def is_validated(cluster: Cluster, name: str) -> bool:
    """Whether a NodePool shows the verdict on its newest generation."""
    found = json.loads(cluster.kubectl("get", "nodepool", name, "-o", "json"))
    return any(
        (each["type"], each["status"]) == ("Validated", "True")
        and each.get("observedGeneration") == found["metadata"]["generation"]
        for each in found.get("status", {}).get("conditions", ())
    )


def joined(cluster: Cluster, node: str) -> str:
    """The name of a Node, once the cluster shows all that the bus says of it.

    Its conditions are written after all else. That its NodePool is at its target does not say so:
    that is another object.
    """
    for state in ("create", "condition=CWRegistered"):
        cluster.kubectl("wait", f"node/{node}", f"--for={state}", "--timeout=60s")
    return node


def takes_up(cluster: Cluster, plane: Plane, name: str, target: int) -> None:
    """Shows that a change with kubectl comes to the bus."""
    apply(cluster, name, target)
    wait_until(f"the bus has target {target}", lambda: plane.target(name) == target, WITHIN_S)


@contextmanager
def a_pool(cluster: Cluster, name: str) -> Iterator[None]:
    """A NodePool without Nodes, from kubectl to the bus and back; it is gone after that."""
    apply(cluster, name)
    wait_until("it is validated", lambda: is_validated(cluster, name), WITHIN_S)
    yield
    cluster.kubectl("delete", "nodepool", name, "--timeout=60s")


def works(cluster: Cluster, name: str) -> None:
    """Shows that some agent does its work."""
    with a_pool(cluster, name):
        pass
