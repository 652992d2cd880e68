"""One cluster for all tests of a run, and beside it one control plane and one agent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.declared import policies_work
from kube.manifests import Manifests, rendered
from kube.shell import Shell
from kube.workloads import Workloads
from testbed.agent import Agent, agent_at_work, declare
from testbed.cluster import WITHIN_S, Cluster, missing, start_cluster, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import A100, CLUSTER, CPU, H100, ORG, Plane, start_plane

MACHINES, QUOTA = 64, 1_000


@pytest.fixture(scope="session")
def manifests() -> Manifests:
    """What `kubectl apply -k deploy/kubernetes` sends."""
    return rendered()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real Kubernetes; without one the test is skipped, and the summary of the run names it."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with start_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A real control plane, with machines and quotas."""
    with start_plane(tmp_path_factory.mktemp("plane")) as plane:
        for each in (H100, A100, CPU):
            plane.stock(each, MACHINES, QUOTA)
        yield plane
    assert plane.processes.errors() == ""


@pytest.fixture(scope="session")
def kubelets(cluster: Cluster, plane: Plane) -> Iterator[Kubelets]:
    """The kubelets of the machines that are Nodes of the cluster."""
    with Kubelets(plane.url, cluster.folder / "kubelets.kubeconfig", ORG, CLUSTER) as kubelets:
        yield kubelets


@pytest.fixture(scope="session")
def account(cluster: Cluster) -> Path:
    """The kubeconfig of the agent's account in the cluster, to which all is declared."""
    return declare(cluster)


@pytest.fixture(scope="module")
def agent(account: Path, plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent at work between the cluster and the control plane, one for each module."""
    with agent_at_work(tmp_path_factory.mktemp("agent"), account, plane.url) as agent:
        yield agent


@pytest.fixture(scope="session")
def declared(cluster: Cluster, account: Path) -> Cluster:
    """The cluster with all that deploy/kubernetes/agent declares, once its policies are at work."""
    assert account.exists()
    # A policy is known to the API server some time after it was stored.
    wait_until("the policies are at work", lambda: policies_work(cluster), WITHIN_S)
    return cluster


@pytest.fixture(scope="module")
def workloads(
    declared: Cluster, plane: Plane, agent: Agent, kubelets: Kubelets
) -> Iterator[Workloads]:
    """What the tests of a module run in the cluster, with an agent and kubelets at work."""
    assert agent.is_leading()
    assert kubelets.never == set()
    workloads = Workloads(declared, plane)
    yield workloads
    workloads.clean()


@pytest.fixture(scope="module")
def shell(cluster: Cluster, plane: Plane, kubelets: Kubelets, agent: Agent) -> Shell:
    """The terminal of a user, beside a cluster in which all is at work."""
    return Shell(cluster)
