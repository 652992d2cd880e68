"""What is wrong with the documents of an inventory, beyond the types of their fields."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from metal.documents import plain_mac
from metal.inventory import boots
from metal.inventory.addresses import (
    REFERENCE_RULE,
    BootNetwork,
    address_fault,
    file_fault,
    fingerprint_fault,
    reference_fault,
)
from metal.inventory.faults import Fault, FaultOf, Path
from metal.inventory.model import (
    BootProfile,
    Expected,
    InventoryDocument,
    Machine,
    Rack,
    WipeProfile,
)
from metal.inventory.unique import Unique
from nodepool.contract import grammar
from nodepool.contract.catalog import is_offered, rack_size, type_fault, zone_fault

MACHINES_MAX: Final = 10_000
"""How many machines an inventory may have."""
FAULTS_MAX: Final = 20
"""How many faults are told at once."""
UNITS_MAX: Final = 64
"""How many units a rack has at most."""
MACS_MAX: Final = 64
MEMORY_GIB_MAX: Final = 1_000_000
GPUS_MAX: Final = 64


def find_faults(documents: Sequence[InventoryDocument], network: BootNetwork) -> Sequence[Fault]:
    """Return the first faults of an inventory, in its order; none if it may be used."""
    return tuple(islice(_list_faults(documents, network), FAULTS_MAX))


def _list_faults(documents: Sequence[InventoryDocument], network: BootNetwork) -> Iterator[Fault]:
    count = sum(len(each.machines) for each in documents if isinstance(each, Rack))
    if count > MACHINES_MAX:
        cause = f"brings the machines to {count}, more than the {MACHINES_MAX} of one inventory"
        last = max(n for n, each in enumerate(documents) if isinstance(each, Rack))
        yield Fault(last, ("machines",), f"{cause}; leave some to another service")
        return
    unique = Unique()
    for number, document in enumerate(documents):
        for path, cause in _faults_of(document, unique, network):
            yield Fault(number, path, cause)
    for number, document in enumerate(documents):
        for path, cause in boots.list_missing(document, documents):
            yield Fault(number, path, cause)


def _faults_of(
    document: InventoryDocument, unique: Unique, network: BootNetwork
) -> Iterator[FaultOf]:
    if reason := type_fault(document.instance_type):
        yield ("instanceType",), reason
    match document:
        case Rack():
            yield from _rack(document, unique)
        case BootProfile():
            yield from boots.list_boot_faults(document, unique, network)
        case WipeProfile():
            yield from boots.list_wipe_faults(document, unique, network)


def _rack(rack: Rack, unique: Unique) -> Iterator[FaultOf]:
    if reason := grammar.dns1123_label(rack.name):
        yield ("name",), reason
    if reason := zone_fault(rack.zone):
        yield ("zone",), reason
    elif not type_fault(rack.instance_type) and not is_offered(rack.instance_type, rack.zone):
        yield ("instanceType",), f"{rack.instance_type} is not offered in {rack.zone}"
    yield from unique.rack(rack)
    yield from _access(("controllers",), rack)
    size = rack_size(rack.instance_type)
    if not rack.machines:
        yield ("machines",), "is empty; list the machines of the rack, or remove the rack"
    if size and len(rack.machines) > size:
        cause = f"has {len(rack.machines)} machines, and a rack of {rack.instance_type} has {size}"
        yield ("machines",), cause
    units: dict[int, str] = {}
    for index, machine in enumerate(rack.machines):
        path: Path = ("machines", index)
        yield from _machine(path, rack, machine)
        yield from unique.machine(path, rack, machine)
        other = units.setdefault(machine.position, machine.name)
        if other != machine.name:
            yield (*path, "position"), f"{machine.position} is the position of {other} too"


def _access(path: Path, rack: Rack) -> Iterator[FaultOf]:
    access = rack.controllers
    if access.credentials and (reason := reference_fault(access.credentials)):
        yield (*path, "credentials"), reason
    if access.ca_file and (reason := file_fault(access.ca_file)):
        yield (*path, "caFile"), reason


def _machine(path: Path, rack: Rack, machine: Machine) -> Iterator[FaultOf]:
    if reason := grammar.dns1123_label(machine.name):
        yield (*path, "name"), reason
    if not 1 <= machine.position <= UNITS_MAX:
        yield (*path, "position"), f"must lie between 1 and {UNITS_MAX}"
    yield from _controller((*path, "controller"), rack, machine)
    yield from _expected((*path, "expected"), machine)


def _controller(path: Path, rack: Rack, machine: Machine) -> Iterator[FaultOf]:
    given = machine.controller
    if reason := address_fault(given.address):
        yield (*path, "address"), reason
    if given.system and (reason := _system_fault(given.system)):
        yield (*path, "system"), reason
    if given.credentials is None and rack.controllers.credentials is None:
        yield (*path, "credentials"), f"is required, here or of the rack; {REFERENCE_RULE}"
    if given.credentials and (reason := reference_fault(given.credentials)):
        yield (*path, "credentials"), reason
    if given.ca_file and (reason := file_fault(given.ca_file)):
        yield (*path, "caFile"), reason
    if given.fingerprint and (reason := fingerprint_fault(given.fingerprint)):
        yield (*path, "fingerprint"), reason
    if given.fingerprint and given.ca_file:
        yield (*path, "caFile"), "must be left out beside fingerprint: give one of both"
    is_checked = given.fingerprint or given.ca_file or rack.controllers.ca_file
    if not is_checked and not given.address.startswith("http://"):
        yield path, "needs caFile, here or of the rack, or the fingerprint of its certificate"


def _system_fault(system: str) -> str | None:
    """Return why this cannot be the id of a system; None if it can."""
    is_plain = system.isascii() and system.isprintable() and not set(system) & set("/?#% ")
    return None if is_plain and len(system) <= grammar.SUBDOMAIN_LIMIT else "is no id of a system"


def _told_fault(what: str, value: str) -> str | None:
    """Return why no controller can tell this of a machine; None if it can."""
    if not value or value != " ".join(value.split()) or not value.isprintable():
        return f"must be {what} as the controller tells it"
    if len(value) > grammar.LABEL_LIMIT:
        return f"has {len(value)} characters, more than the {grammar.LABEL_LIMIT} allowed"
    return None


def _expected(path: Path, machine: Machine) -> Iterator[FaultOf]:
    expected = machine.expected
    if reason := _told_fault("the serial number", expected.serial):
        yield (*path, "serial"), reason
    for where, what, version in _versions(expected):
        if version and (reason := _told_fault(f"the version of {what}", version)):
            yield (*path, *where), reason
    if not 1 <= expected.memory_gib <= MEMORY_GIB_MAX:
        yield (*path, "memoryGib"), f"must lie between 1 and {MEMORY_GIB_MAX}"
    if expected.gpus is not None and not 0 <= expected.gpus.count <= GPUS_MAX:
        yield (*path, "gpus", "count"), f"must lie between 0 and {GPUS_MAX}"
    if len(expected.macs) > MACS_MAX:
        yield (*path, "macs"), f"has more than {MACS_MAX} addresses"
    for index, mac in enumerate(expected.macs[:MACS_MAX]):
        if not plain_mac(mac):
            cause = "is no MAC address; write six pairs of hex digits, such as 00:5c:52:31:3a:9c"
            yield (*path, "macs", index), cause


def _versions(expected: Expected) -> Iterator[tuple[Path, str, str]]:
    """Yield each version that is expected of a firmware: its path, what has it, and the version."""
    yield ("biosVersion",), "the BIOS", expected.bios_version
    yield ("controllerVersion",), "the firmware of the controller", expected.controller_version
    if expected.gpus is not None:
        yield ("gpus", "firmwareVersion"), "the firmware", expected.gpus.firmware_version
