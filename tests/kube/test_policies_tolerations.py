"""Which tolerations the cluster adds to the Pods of users."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kube.cluster import Cluster, Document, wait_until
from kube.declared import DRY, by_user, pod
from nodepool.contract.pods import reserved_taint

CPU = {"key": "is_cpu_compute", "operator": "Exists", "effect": "NoSchedule"}


def resources(kind: str, **amounts: str) -> Document:
    names = {"gpu": "nvidia.com/gpu", "accelerator": "sunk.coreweave.com/accelerator", "cpu": "cpu"}
    found = {names[name]: amount for name, amount in amounts.items()}
    # A GPU that is requested is limited to the same amount.
    return {
        "resources": {"requests": found, "limits": found} if kind == "requests" else {kind: found}
    }


def only(**more: object) -> Document:
    return {"name": "only", "image": "none", **more}


WITHOUT_GPU: Mapping[str, Mapping[str, Any]] = {
    "no resources": {},
    "processors": {"containers": [only(**resources("requests", cpu="1"))]},
    "none of them": {"containers": [only(**resources("limits", gpu="0"))]},
    "tolerations of another kind": {"tolerations": [{"key": "team", "operator": "Exists"}]},
    "a toleration of another effect": {"tolerations": [{**CPU, "effect": "NoExecute"}]},
    "a toleration of one value": {"tolerations": [{**CPU, "operator": "Equal", "value": "x"}]},
}
WITH_GPU: Mapping[str, Mapping[str, Any]] = {
    "a limit": {"containers": [only(**resources("limits", gpu="1"))]},
    "a request": {"containers": [only(**resources("requests", gpu="8"))]},
    "the other name": {"containers": [only(**resources("limits", accelerator="1"))]},
    "the second container": {
        "containers": [only(), {**only(**resources("limits", gpu="1")), "name": "b"}]
    },
    "an init container": {
        "initContainers": [{**only(**resources("limits", gpu="1")), "name": "b"}]
    },
}


def tolerations(
    cluster: Cluster, spec: Mapping[str, Any], namespace: str = "default"
) -> list[Mapping[str, str]]:
    """The tolerations that a user's new Pod gets, but those of every Pod."""
    given = {**pod("tolerating"), "metadata": {"name": "tolerating", "namespace": namespace}}
    given["spec"] = {**pod("x")["spec"], **spec}  # type: ignore[dict-item]
    code, printed = by_user(cluster, *DRY, "-o", "json", given=given)
    assert code == 0, printed
    found: list[Mapping[str, str]] = json.loads(printed)["spec"]["tolerations"]
    return [item for item in found if not item["key"].startswith("node.kubernetes.io/")]


@pytest.mark.parametrize("spec", WITHOUT_GPU.values(), ids=WITHOUT_GPU)
def test_a_pod_without_gpus_tolerates_nodes_without_gpus(
    declared: Cluster, spec: Mapping[str, Any]
) -> None:
    assert tolerations(declared, spec) == [*spec.get("tolerations", ()), CPU]


@pytest.mark.parametrize("spec", WITH_GPU.values(), ids=WITH_GPU)
def test_a_pod_with_gpus_does_not(declared: Cluster, spec: Mapping[str, Any]) -> None:
    assert tolerations(declared, spec) == []


@pytest.mark.parametrize("given", [CPU, {"key": "is_cpu_compute", "operator": "Exists"}])
def test_a_toleration_that_is_there_is_not_added_again(
    declared: Cluster, given: Mapping[str, str]
) -> None:
    assert tolerations(declared, {"tolerations": [given]}) == [given]


HASH = reserved_taint("acme").value


@pytest.fixture(scope="module")
def with_reserved_taint(declared: Cluster) -> Iterator[Cluster]:
    """The cluster with the setting of the services that taints Nodes in production as well."""

    def set_hash(value: str | None) -> None:
        patch = json.dumps({"data": {"RESERVED_HASH": value}})
        declared.kubectl(
            "patch", "configmap", "nodepool-agent", "-n", "kube-system", "--type=merge", "-p", patch
        )
        wait_until(
            "the policy knows of it",
            lambda: (len(tolerations(declared, {})) == 2) is (value is not None),
            30,
        )

    set_hash(HASH)
    yield declared
    set_hash(None)


def test_where_production_is_tainted_pods_of_the_organisation_tolerate_it(
    with_reserved_taint: Cluster,
) -> None:
    reserved = {"key": "node.coreweave.cloud/reserved", "operator": "Equal", "value": HASH}

    plain = tolerations(with_reserved_taint, {})
    on_gpus = tolerations(with_reserved_taint, WITH_GPU["a limit"])
    already = tolerations(with_reserved_taint, {"tolerations": [reserved]})
    of_the_control_plane = tolerations(with_reserved_taint, {}, "hpc-verification")

    assert [item for item in plain if item != CPU] == [reserved]
    assert on_gpus == [reserved]
    assert already == [reserved, CPU]
    assert of_the_control_plane == [CPU]
    of_the_system = tolerations(with_reserved_taint, {}, "kube-system")
    assert [item for item in of_the_system if item != CPU] == [reserved]
