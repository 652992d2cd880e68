"""A cluster and a control plane for each test: these leave much behind, or break it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster, missing, start_cluster
from testbed.kubelets import Kubelets
from testbed.plane import CLUSTER, H100, ORG, Plane, start_plane

MACHINES = 320
LEASE_S = 40
"""As Kubernetes has it, so that no Node is taken for silent on a machine with much to do."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A real Kubernetes; without one the test is skipped, and the summary of the run names it."""
    if reason := missing():
        pytest.skip(reason)
    with start_cluster(LEASE_S) as cluster:
        yield cluster


@pytest.fixture
def plane(cluster: Cluster, tmp_path: Path) -> Iterator[Plane]:
    """A real control plane with machines, whose kubelets are at work."""
    folder = tmp_path / "plane"
    folder.mkdir()
    connection = cluster.folder / "kubelets.kubeconfig"
    with start_plane(folder) as plane, Kubelets(plane.url, connection, ORG, CLUSTER):
        plane.stock(H100, MACHINES, MACHINES)
        yield plane
