"""One cluster for all tests of a run."""

from collections.abc import Iterator

import pytest

from kube.cluster import Cluster, missing, started
from kube.manifests import Manifests, rendered


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
    with started() as cluster:
        yield cluster
