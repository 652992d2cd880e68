"""Which tolerations the cluster adds to the Pods of users."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kube.declared import DRY, by_user, pod
from nodepool.contract.model import RESERVED
from nodepool.contract.pods import reserved_taint
from testbed.cluster import Cluster, Document

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
    """Return the tolerations of a user's new Pod, without those that Kubernetes gives every Pod."""
    given = {**pod("tolerating"), "metadata": {"name": "tolerating", "namespace": namespace}}
    given["spec"] = {**pod("x")["spec"], **spec}  # type: ignore[dict-item]
    code, printed = by_user(cluster, *DRY, "-o", "json", given=given)
    assert code == 0, printed
    found: list[Mapping[str, str]] = json.loads(printed)["spec"]["tolerations"]
    return [item for item in found if not item["key"].startswith("node.kubernetes.io/")]


def unreserved(cluster: Cluster, spec: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the `tolerations` without the toleration of the taint of the organisation."""
    return [item for item in tolerations(cluster, spec) if item["key"] != RESERVED]


@pytest.mark.parametrize("spec", WITHOUT_GPU.values(), ids=WITHOUT_GPU)
def test_a_pod_without_gpus_tolerates_nodes_without_gpus(
    declared: Cluster, spec: Mapping[str, Any]
) -> None:
    assert unreserved(declared, spec) == [*spec.get("tolerations", ()), CPU]


@pytest.mark.parametrize("spec", WITH_GPU.values(), ids=WITH_GPU)
def test_a_pod_with_gpus_does_not(declared: Cluster, spec: Mapping[str, Any]) -> None:
    assert unreserved(declared, spec) == []


@pytest.mark.parametrize("given", [CPU, {"key": "is_cpu_compute", "operator": "Exists"}])
def test_a_toleration_that_is_there_is_not_added_again(
    declared: Cluster, given: Mapping[str, str]
) -> None:
    assert unreserved(declared, {"tolerations": [given]}) == [given]


HASH = reserved_taint("acme").value


def test_where_production_is_tainted_pods_of_the_organisation_tolerate_it(
    declared: Cluster,
) -> None:
    reserved = {"key": "node.coreweave.cloud/reserved", "operator": "Equal", "value": HASH}

    plain = tolerations(declared, {})
    on_gpus = tolerations(declared, WITH_GPU["a limit"])
    already = tolerations(declared, {"tolerations": [reserved]})
    of_the_control_plane = tolerations(declared, {}, "hpc-verification")

    assert [item for item in plain if item != CPU] == [reserved]
    assert on_gpus == [reserved]
    assert already == [reserved, CPU]
    assert of_the_control_plane == [CPU]
    of_the_system = tolerations(declared, {}, "kube-system")
    assert [item for item in of_the_system if item != CPU] == [reserved]
