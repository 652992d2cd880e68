"""Which instance types and zones exist, and which type is offered in which zone."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from nodepool.contract.services import PROVIDERS
from nodepool.contract.suggest import did_you_mean
from nodepool.contract.words import Word

RACK_SIZE: Final = 18
"""How many machines are a rack as long as their type is unknown."""


class Kind(Word):
    """What a machine computes with, and the value of the label `node.coreweave.cloud/class`."""

    GPU = "gpu"
    CPU = "cpu"


class Backend(Word):
    """The fabric between machines, and the value of the label `backend.coreweave.cloud/flavor`."""

    INFINIBAND = "infiniband"
    ROCE = "roce"
    NONE = ""


class Access(Word):
    """Whether a zone is open to every customer, which is called General Access."""

    GENERAL = "general"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A kind of machine.

    id: its name, the value of `spec.instanceType`.
    kind: what it computes with.
    gpus, gpu_model: how many GPUs of which model.
    gpu_memory_gb: the memory of each GPU, in GB; 0 without GPUs.
    vcpu: how many virtual CPUs.
    memory_ki: its memory, in KiB.
    memory_measured: whether `memory_ki` is what a Node reports, not the advertised GB times 1024².
    arch: the architecture of its CPU, as in the label `kubernetes.io/arch`.
    superchip: whether CPU and GPU are one module.
    rack_size: how many of them are only available together; 0 where each is available alone.
    backend: the fabric between them.
    zones: the zones that offer it; none for a type that is not offered anywhere.
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
    """An availability zone; the name of its region is its own without the last letter.

    provider: the service that has all machines of the zone. It never changes: no other service can
        say what became of machines that are in the log.
    """

    name: str
    region: str
    access: Access
    provider: str = PROVIDERS[0]


def is_offered(instance_type: str, zone: str) -> bool:
    """Return whether this zone offers this type; False if the zone or the type is unknown.

    Names are case-sensitive.
    """
    entry = INSTANCE_TYPES.get(instance_type)
    return entry is not None and zone in entry.zones


def rack_size(instance_type: str) -> int:
    """Return the number of machines per rack of a type; 0 if it has no racks or is unknown."""
    entry = INSTANCE_TYPES.get(instance_type)
    return entry.rack_size if entry is not None else 0


def is_spot_offered(instance_type: str, zone: str) -> bool:
    """Return whether this zone offers spot Nodes of this type."""
    if not is_offered(instance_type, zone) or INSTANCE_TYPES[instance_type].superchip:
        return False
    return ZONES[zone].access is Access.GENERAL


def type_fault(name: str) -> str | None:
    """Return why this is no instance type, with a close name if any; None if it is a type."""
    if name in INSTANCE_TYPES:
        return None
    return f"{name} is not a known instance type{did_you_mean(name, INSTANCE_TYPES)}"


def zone_fault(name: str) -> str | None:
    """Return why this is no availability zone, like `type_fault`."""
    return None if name in ZONES else f"{name} is not a known zone{did_you_mean(name, ZONES)}"


def provider_of(zone: str) -> str:
    """Return the provider of the machines of a zone; the first provider, of an unknown zone."""
    entry = ZONES.get(zone)
    return entry.provider if entry is not None else PROVIDERS[0]


def provider_fault(zone: str, provider: str) -> str | None:
    """Return why this provider can have no machine in a zone, and what to do; None if it can."""
    holder = provider_of(zone)
    if holder == provider:
        return None
    own = next((name for name in ZONES if provider_of(name) == provider), "")
    remedy = f"name a zone of {provider}, such as {own}" if own else f"{provider} has no zone"
    return f"the machines of {zone} belong to the provider {holder}: {remedy}"


def _instance_type(entry: Mapping[str, Any]) -> InstanceType:
    enumerated = {"kind": Kind(entry["kind"]), "backend": Backend(entry["backend"])}
    return InstanceType(**{**entry, **enumerated, "zones": tuple(entry["zones"])})


def _zone(name: str, entry: Mapping[str, Any]) -> Zone:
    provider = entry.get("provider", PROVIDERS[0])
    if provider not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise ValueError(f"zones.{name}.provider: {provider} is no provider; choose from {known}")
    return Zone(name, entry["region"], Access(entry["access"]), provider)


def _read_catalog() -> dict[str, Any]:
    text = resources.files("nodepool.contract").joinpath("catalog.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


_CATALOG: Final = _read_catalog()

INSTANCE_TYPES: Final[Mapping[str, InstanceType]] = MappingProxyType(
    {entry["id"]: _instance_type(entry) for entry in _CATALOG["types"]}
)
"""Every instance type by its id, in the order of the data file."""

ZONES: Final[Mapping[str, Zone]] = MappingProxyType(
    {name: _zone(name, entry) for name, entry in _CATALOG["zones"].items()}
)
"""Every zone by its name, in alphabetical order."""
