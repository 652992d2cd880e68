"""An inventory whose documents have been checked, by what is asked of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metal.inventory.addresses import plain_address, plain_fingerprint
from metal.inventory.model import (
    WIPE_MINUTES,
    BootProfile,
    Expected,
    Gpus,
    InventoryDocument,
    Machine,
    Rack,
    Reference,
    WipeProfile,
)
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.keys import MachineKey, machine_key
from nodepool.contract.real_machines import BootFrom


@dataclass(frozen=True, slots=True)
class Place:
    """How one controller is reached.

    address: `https://` and a host, in lower case.
    system: the id of the system; empty if the controller has one only.
    credentials: where `user:password` is.
    ca_file, fingerprint: what its certificate is checked by: one of both, or none for an address
        that begins with `http://`. A fingerprint is 64 hex digits.
    """

    address: str
    credentials: Reference
    system: str = ""
    ca_file: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class KnownMachine:
    """A machine of the inventory: where it stands, how it is reached, what it is made of.

    wipes: whether it is wiped as new and after each stay; wipe_minutes: how long that may take.
    """

    zone: str
    name: str
    instance_type: str
    rack: str
    position: int
    place: Place
    expected: Expected
    wipes: bool = True
    wipe_minutes: int = WIPE_MINUTES


@dataclass(frozen=True, slots=True)
class Inventory:
    """All machines by key, and what they boot."""

    machines: Mapping[MachineKey, KnownMachine]
    boots: Mapping[tuple[str, str, str], BootProfile]
    wipes: Mapping[str, WipeProfile]

    def boot_profile(self, instance_type: str, org: str, cluster: str) -> BootProfile | None:
        """Return what machines of a type boot to join a cluster; None if nothing is given."""
        own = self.boots.get((instance_type, org, cluster))
        return own or self.boots.get((instance_type, "", ""))

    def find_boot(
        self, boot_from: BootFrom, instance_type: str, org: str, cluster: str
    ) -> BootProfile | WipeProfile | None:
        """Return the profile that machines of a type boot for a request; None without one."""
        if boot_from == "wipe":
            return self.wipes.get(instance_type)
        return self.boot_profile(instance_type, org, cluster)


def build_inventory(documents: Iterable[InventoryDocument]) -> Inventory:
    """Return the inventory of documents in which `find_faults` has found nothing."""
    documents = tuple(documents)
    racks = [each for each in documents if isinstance(each, Rack)]
    boots = [each for each in documents if isinstance(each, BootProfile)]
    given = (each for each in documents if isinstance(each, WipeProfile))
    wipes = {each.instance_type: each for each in given}
    machines = [
        _known(rack, each, wipes.get(rack.instance_type))
        for rack in racks
        for each in rack.machines
    ]
    return Inventory(
        machines={machine_key(each.zone, each.name): each for each in machines},
        boots={(each.instance_type, each.org, each.cluster): each for each in boots},
        wipes=wipes,
    )


def _known(rack: Rack, machine: Machine, wipe: WipeProfile | None) -> KnownMachine:
    return KnownMachine(
        zone=rack.zone,
        name=machine.name,
        instance_type=rack.instance_type,
        rack=rack.name,
        position=machine.position,
        place=place_of(rack, machine),
        expected=_with_gpus(machine.expected, rack.instance_type),
        wipes=rack.wipes,
        wipe_minutes=wipe.within_minutes if wipe is not None else WIPE_MINUTES,
    )


def place_of(rack: Rack, machine: Machine) -> Place:
    """Return how a controller is reached: as its machine says, else as its rack says."""
    given, shared = machine.controller, rack.controllers
    fingerprint = plain_fingerprint(given.fingerprint)
    address = plain_address(given.address)
    needs_authority = not fingerprint and address.startswith("https://")
    return Place(
        address=address,
        credentials=given.credentials or shared.credentials or Reference(),
        system=given.system,
        ca_file=(given.ca_file or shared.ca_file) if needs_authority else "",
        fingerprint=fingerprint,
    )


def _with_gpus(expected: Expected, instance_type: str) -> Expected:
    """Return the expected hardware with the GPUs of the instance type if no others are given."""
    kind = INSTANCE_TYPES[instance_type]
    if expected.gpus is not None:
        return expected
    return expected.model_copy(update={"gpus": Gpus(count=kind.gpus, model=kind.gpu_model)})
