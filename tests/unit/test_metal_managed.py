"""Which machines are not read while a power request is sent to one of them."""

from metal.host.managed import ManagedMachines
from metal.host.redfish.controllers import Controllers
from metal.inventory.inventory import Inventory, KnownMachine, Place
from metal.inventory.model import Expected, Reference
from nodepool.contract.keys import MachineKey, machine_key
from support.constants import H100, ZONE

ONE, OTHER, THIRD = (machine_key(ZONE, name) for name in ("m1", "m2", "m3"))


def known(key: MachineKey, address: str, system: str = "") -> KnownMachine:
    """A machine behind the controller at an address."""
    name = key.rpartition("/")[2]
    place = Place(address, Reference(file="/bmc"), system=system)
    return KnownMachine(ZONE, name, H100, "r1", 1, place, Expected(serial=name, memory_gib=64))


async def test_the_machines_behind_one_controller_are_found_together() -> None:
    # given two systems of one controller, and a machine with a controller of its own
    async with Controllers() as controllers:
        machines = ManagedMachines(controllers)
        shared, own = "https://10.0.0.1", "https://10.0.0.2"
        listed = {ONE: known(ONE, shared, "1"), OTHER: known(OTHER, shared, "2")}
        machines.replace(Inventory({**listed, THIRD: known(THIRD, own)}, {}, {}))

        # then each system is beside the other one
        assert machines.list_beside(ONE) == {ONE, OTHER}
        assert machines.list_beside(OTHER) == {ONE, OTHER}
        assert machines.list_beside(THIRD) == {THIRD}

        # and when the inventory has one of them elsewhere, each is alone
        machines.replace(Inventory({**listed, OTHER: known(OTHER, own)}, {}, {}))
        assert machines.list_beside(ONE) == {ONE}
        assert machines.list_beside(OTHER) == {OTHER}
        assert machines.list_beside(THIRD) == {THIRD}
