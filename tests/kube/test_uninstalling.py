"""What is declared to a cluster is taken away, and comes back: NodePools on the bus stay."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kube.node_pools import manifest
from testbed.agent import DECLARED, agent_at_work, declare
from testbed.cluster import WITHIN_S, Cluster, missing, start_cluster, wait_until
from testbed.plane import Plane, start_plane

DEFINITION = "nodepools.compute.coreweave.com"
FREE = '{"metadata":{"finalizers":null}}'


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Plane]]:
    """A cluster and a control plane of this module's, since nothing is left of what is declared."""
    if reason := missing():
        pytest.skip(reason)
    with ExitStack() as stack:
        cluster = stack.enter_context(start_cluster())
        yield cluster, stack.enter_context(start_plane(tmp_path_factory.mktemp("plane")))


def uid(plane: Plane) -> str | None:
    """The uid of the NodePool on the bus; None where there is none, or it is being deleted."""
    found = plane.pool("kept")
    metadata = found["metadata"] if found is not None else None
    if not isinstance(metadata, dict) or "deletionTimestamp" in metadata:
        return None
    return str(metadata["uid"])


def has_object(cluster: Cluster) -> bool:
    return cluster.run("get", "nodepool", "kept").returncode == 0


def test_what_is_declared_goes_and_comes_back_while_the_bus_keeps_its_node_pools(
    own: tuple[Cluster, Plane], tmp_path: Path
) -> None:
    cluster, plane = own
    with agent_at_work(tmp_path, declare(cluster), plane.url):
        cluster.kubectl("create", "-f", "-", given=manifest("kept", 0))
        wait_until("the bus has it", lambda: uid(plane) is not None, WITHIN_S)
        before = uid(plane)

        # when the kind is deleted, as the README says, its objects go with it and the bus keeps it
        cluster.kubectl("delete", "crd", DEFINITION, "--timeout=45s")
        assert uid(plane) == before

        # and under the same agent, its object is back once the kind is, and can be deleted again
        cluster.kubectl("apply", "-f", str(DECLARED / "crd.yaml"))
        wait_until("its object is back", lambda: has_object(cluster), WITHIN_S)
        assert uid(plane) == before
        cluster.kubectl("delete", "crd", DEFINITION, "--timeout=45s")
        assert uid(plane) == before

        # and everything else can be deleted, but the namespace that is not ours
        done = cluster.run("delete", "-k", str(DECLARED), "--ignore-not-found", "--timeout=45s")
        refused = [line for line in done.stderr.splitlines() if line.startswith("Error")]
        assert len(refused) == 1
        assert "kube-system" in refused[0]
        assert uid(plane) == before

    # when it is declared again, then the object is back, and is the same NodePool
    with agent_at_work(tmp_path, declare(cluster), plane.url, name="second"):
        wait_until("its object is back", lambda: has_object(cluster), WITHIN_S)
        assert uid(plane) == before

        # when all is deleted at once, the agent may lose its rights before it lets the objects go
        cluster.run("delete", "-k", str(DECLARED), "--wait=false")
        assert uid(plane) == before

    # then they are let go by hand, and the bus has still heard nothing of it
    cluster.run("patch", "nodepool", "kept", "--type=merge", "-p", FREE)
    gone = ("wait", "--for=delete", f"crd/{DEFINITION}", "--timeout=60s")
    cluster.kubectl(*gone)
    assert uid(plane) == before
