"""Manifests of NodePools, right but for what a test changes."""

from collections.abc import Mapping

from nodepool.contract.keys import PoolPath
from support.constants import CLUSTER, H100, ORG, RACK

TRAIN: PoolPath = (ORG, CLUSTER, "train")
"""The path of the NodePool in `manifest`."""


def manifest(
    metadata: Mapping[str, object] | None = None, **spec: object
) -> dict[str, dict[str, object]]:
    """The manifest of the NodePool `train`, with these fields; None leaves one out of the spec."""
    fields = {"instanceType": H100, "targetNodes": 1, **spec}
    given = {name: value for name, value in fields.items() if value is not None}
    return {"metadata": {"name": "train", **(metadata or {})}, "spec": given}


def rack_affinity(*racks: str) -> dict[str, object]:
    """The affinity to machines in one of these racks."""
    return label_affinity(RACK, *racks)


def label_affinity(key: str, *values: str) -> dict[str, object]:
    """Return the affinity to machines whose label `key` has one of these values."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
