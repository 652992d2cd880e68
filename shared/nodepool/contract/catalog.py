"""Which instance types and zones exist, and which type is offered where."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from types import MappingProxyType
from typing import Any, Final


class Kind(StrEnum):
    """What a machine computes with; also the value of `node.coreweave.cloud/class`."""

    GPU = "gpu"
    CPU = "cpu"


class Backend(StrEnum):
    """The fabric between machines; also the value of `backend.coreweave.cloud/flavor`."""

    INFINIBAND = "infiniband"
    ROCE = "roce"
    NONE = ""


class Access(StrEnum):
    """Whether a zone is open to every customer (General Access) or of another class."""

    GENERAL = "general"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One kind of machine, in the numbers a customer orders it by.

    `gpu_memory_gb` is per GPU and 0 without GPUs. `memory_ki` is in KiB: what a node reports when
    `memory_measured`, else the advertised GB times 1024². `rack_size` is the number of nodes that
    are only had together, or 0. `zones` may be empty: such a type is known but offered nowhere.
    """

    id: str
    kind: Kind
    gpus: int
    gpu_model: str
    gpu_memory_gb: int
    vcpu: int
    memory_ki: int
    memory_measured: bool
    arch: str
    superchip: bool
    rack_size: int
    backend: Backend
    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Zone:
    """One availability zone; `region` is its name without the last letter."""

    name: str
    region: str
    access: Access


def offered(instance_type: str, zone: str) -> bool:
    """Whether machines of this type stand in this zone; False when either name is unknown.

    Names are compared exactly, capitals included.
    """
    known = INSTANCE_TYPES.get(instance_type)
    return known is not None and zone in known.zones


def _instance_type(entry: Mapping[str, Any]) -> InstanceType:
    enumerated = {"kind": Kind(entry["kind"]), "backend": Backend(entry["backend"])}
    return InstanceType(**{**entry, **enumerated, "zones": tuple(entry["zones"])})


def _zone(name: str, entry: Mapping[str, Any]) -> Zone:
    return Zone(name=name, region=entry["region"], access=Access(entry["access"]))


def _packaged() -> dict[str, Any]:
    text = resources.files("nodepool.contract").joinpath("catalog.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


_CATALOG: Final = _packaged()

INSTANCE_TYPES: Final[Mapping[str, InstanceType]] = MappingProxyType(
    {entry["id"]: _instance_type(entry) for entry in _CATALOG["types"]}
)
"""Every instance type by its ID, in the order of the data file."""

ZONES: Final[Mapping[str, Zone]] = MappingProxyType(
    {name: _zone(name, entry) for name, entry in _CATALOG["zones"].items()}
)
"""Every zone by its name, alphabetically. A zone is valid by being listed, not by its spelling."""
