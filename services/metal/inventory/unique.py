"""What may be in an inventory once only."""

from collections.abc import Iterator

from metal.documents import plain_mac
from metal.inventory.faults import FaultOf, Path
from metal.inventory.inventory import place_of
from metal.inventory.model import BootProfile, Machine, Rack, WipeProfile
from nodepool.contract.keys import machine_key


class Unique:
    """What the documents have said so far, each with the machine that it belongs to."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, ...], str] = {}

    def _claim(self, owner: str, *value: str) -> str:
        """Return the earlier owner of a value; empty if this one is the first."""
        known = self._owners.get(value, "")
        self._owners.setdefault(value, owner)
        return known

    def rack(self, rack: Rack) -> Iterator[FaultOf]:
        """Yield a fault if there is another rack of this name in the zone."""
        if self._claim(rack.name, "rack", rack.zone, rack.name):
            cause = f"there is a rack {rack.name} in {rack.zone} already; list its machines once"
            yield ("name",), cause

    def machine(self, path: Path, rack: Rack, machine: Machine) -> Iterator[FaultOf]:
        """Yield a fault for each value of a machine that an earlier machine has."""
        owner = f"{machine.name} of rack {rack.name}"
        place, serial = place_of(rack, machine), machine.expected.serial
        if self._claim(owner, "machine", machine_key(rack.zone, machine.name)):
            cause = f"there is a machine {machine.name} in {rack.zone} already; rename one of both"
            yield (*path, "name"), cause
        if other := self._claim(owner, "address", place.address, place.system):
            cause = (
                f"is the address of {other} too; give each machine its own, or controller.system"
            )
            yield (*path, "controller", "address"), cause
        if other := self._claim(owner, "serial", serial.casefold()):
            cause = f"{serial[:64]!r} is the serial number of {other} too; read both again"
            yield (*path, "expected", "serial"), cause
        for index, mac in enumerate(machine.expected.macs):
            plain = plain_mac(mac)
            if plain and (other := self._claim(owner, "mac", plain)):
                cause = f"{plain} is an address of {other} too; read both again"
                yield (*path, "expected", "macs", index), cause

    def boot(self, profile: BootProfile) -> Iterator[FaultOf]:
        """Yield a fault if there is another boot profile for the same machines."""
        key = (profile.instance_type, profile.org, profile.cluster)
        if self._claim(profile.image, "boot", *key):
            where = profile.cluster or "all other clusters"
            yield ("instanceType",), f"has a BootProfile for {where} already; keep one"

    def wipe(self, profile: WipeProfile) -> Iterator[FaultOf]:
        """Yield a fault if there is another wipe profile for the same machines."""
        if self._claim(profile.image, "wipe", profile.instance_type):
            yield ("instanceType",), "has a WipeProfile already; keep one"
