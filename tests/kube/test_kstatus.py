"""What tools such as Flux and Helm see of a NodePool: its status by their own library, kstatus."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pytest

from kube.conftest import MACHINES, QUOTA
from kube.declared import applied
from kube.node_pools import name_for
from kube.workloads import Workloads
from support.kstatus import status_of
from testbed.cluster import CACHE, WITHIN_S, Cluster, Document, wait_until
from testbed.plane import A100, node_pool

HELD = "tests.coreweave.io/held"


def statuses(documents: Iterable[Document]) -> Sequence[str]:
    """Return the status of each object by sigs.k8s.io/cli-utils/pkg/kstatus."""
    done = subprocess.run(
        [str(CACHE / "testbed"), "kstatus"],
        input="\n".join(json.dumps(each) for each in documents),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n`make testbed` builds the newest one"
    return done.stdout.splitlines()


def status(cluster: Cluster, pool: str) -> str:
    """Return the status of a NodePool in the cluster."""
    (found,) = statuses([json.loads(cluster.kubectl("get", "nodepool", pool, "-o", "json"))])
    return found


def wait_for_status(cluster: Cluster, pool: str, expected: str) -> None:
    """Return once a NodePool has this status."""
    wait_until(f"{pool} is {expected}", lambda: status(cluster, pool) == expected, WITHIN_S)


@pytest.fixture
def pool(workloads: Workloads, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a NodePool without Nodes that has what it asks for."""
    name = name_for(request)
    workloads.pool(name, 0, A100)
    wait_for_status(workloads.cluster, name, "Current")
    yield name
    workloads.cluster.kubectl("delete", "nodepool", name, "--ignore-not-found", "--timeout=60s")


def change(workloads: Workloads, pool: str, **spec: object) -> None:
    """Applies a NodePool again as a user does."""
    workloads.apply(node_pool(pool, instanceType=A100, **spec))


def test_a_pool_that_nobody_has_looked_at_is_in_progress(declared: Cluster) -> None:
    with applied(declared, node_pool("unseen")):
        assert status(declared, "unseen") == "InProgress"


def test_a_pool_is_current_only_when_all_its_nodes_are_there(
    workloads: Workloads, pool: str
) -> None:
    cluster = workloads.cluster
    shown = ("nodepool", pool, "-o", "jsonpath={@}{'\\n'}")

    # when it is scaled, and scaled again
    with cluster.watching(*shown) as seen:
        for target in (2, 1):
            workloads.scale(pool, target)
            wait_for_status(cluster, pool, "Current")

    # then each state that counts as current has the Nodes that it asks for
    states = [json.loads(line) for line in seen]
    current = [
        state for state, found in zip(states, statuses(states), strict=True) if found == "Current"
    ]
    assert [
        state
        for state in current
        if state["status"]["currentNodes"] != state["spec"]["targetNodes"]
    ] == []
    assert {state["spec"]["targetNodes"] for state in current} == {0, 1, 2}


def test_a_pool_that_waits_for_machines_is_in_progress(workloads: Workloads, pool: str) -> None:
    change(workloads, pool, targetNodes=MACHINES + 1)
    workloads.wait_for_verdict(pool, "Capacity", "False .*")

    assert status(workloads.cluster, pool) == "InProgress"


def test_a_pool_that_needs_a_person_has_failed(workloads: Workloads, pool: str) -> None:
    wrong: Mapping[str, Any] = {"targetNodes": 0, "region": "US-WEST-01A"}

    change(workloads, pool, targetNodes=QUOTA + 1)
    wait_for_status(workloads.cluster, pool, "Failed")
    over = workloads.verdict(pool, "Stalled")
    change(workloads, pool, targetNodes=0)
    wait_for_status(workloads.cluster, pool, "Current")
    change(workloads, pool, **wrong)
    wait_for_status(workloads.cluster, pool, "Failed")

    assert over.startswith("True Over: ")
    assert workloads.verdict(pool, "Stalled").startswith("True Invalid: ")


def test_a_pool_that_is_deleted_is_terminating(workloads: Workloads, pool: str) -> None:
    held = json.dumps([{"op": "add", "path": "/metadata/finalizers/-", "value": HELD}])
    workloads.cluster.kubectl("patch", "nodepool", pool, "--type=json", "-p", held)

    workloads.cluster.kubectl("delete", "nodepool", pool, "--wait=false")

    assert status(workloads.cluster, pool) == "Terminating"
    workloads.cluster.kubectl(
        "patch", "nodepool", pool, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )


def every_object() -> Iterator[Document]:
    """Return an object for each combination of what kstatus looks at."""
    kinds = ("Reconciling", "Stalled", "Ready")
    told = ("True", "False", "Unknown", None)
    for deleting, observed, *found in product((True, False), (None, 0, 2), *(told for _ in kinds)):
        conditions = [
            {"type": kind, "status": status, "reason": "R", "message": ""}
            for kind, status in zip(kinds, found, strict=True)
            if status is not None
        ]
        yield {
            **node_pool("any"),
            "metadata": {
                "name": "any",
                "generation": 2,
                **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}),
            },
            "status": {
                "conditions": conditions,
                **({"observedGeneration": observed} if observed is not None else {}),
            },
        }


def test_the_rules_of_other_tests_are_those_of_the_library(cluster: Cluster) -> None:
    assert cluster.is_ready()
    objects = [*every_object()]

    assert [*map(status_of, objects)] == statuses(objects)
