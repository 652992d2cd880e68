"""What differs between a machine and the inventory, in sentences."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from metal.documents import plain_mac
from metal.inventory.model import Expected
from metal.reading import Reading
from nodepool.contract.keys import MachineKey
from nodepool.contract.real_machines import Power


def compare(expected: Expected, reading: Reading) -> tuple[str, ...]:
    """Return a sentence for each difference of its parts; none if they are the expected ones.

    Parts that were not asked for are not compared. A controller may not see the memory and the
    GPUs of a machine without power, so both are compared only while the machine is on. Versions
    that the controller tells of the BIOS and of itself are always compared.
    """
    return tuple(_differences(expected, reading))


def _differences(expected: Expected, reading: Reading) -> Iterator[str]:
    yield from _bios(expected, reading)
    yield from _controller(expected, reading)
    if reading.power is Power.ON:
        yield from _memory(expected, reading)
        yield from _gpus(expected, reading)
    if reading.macs is not None:
        missing = sorted({plain_mac(each) for each in expected.macs} - set(reading.macs))
        if missing:
            yield f"no network interface has the expected MAC address {', '.join(missing)}"


def _bios(expected: Expected, reading: Reading) -> Iterator[str]:
    wanted, found = expected.bios_version, reading.bios_version
    if not wanted or wanted == found:
        return
    if found:
        yield f"the BIOS has version {found}, and {wanted} is expected"
    elif reading.power is Power.ON:
        yield f"the controller tells no version of the BIOS, and {wanted} is expected"


def _controller(expected: Expected, reading: Reading) -> Iterator[str]:
    wanted, found = expected.controller_version, reading.controller_version
    if found is None or wanted in ("", found):
        return
    if found:
        yield f"the firmware of the controller has version {found}, and {wanted} is expected"
    else:
        yield f"the controller tells no version of its firmware, and {wanted} is expected"


def _memory(expected: Expected, reading: Reading) -> Iterator[str]:
    if reading.memory_gib is None:
        yield f"the controller tells no memory, and {expected.memory_gib} GiB are expected"
    elif round(reading.memory_gib) != expected.memory_gib:
        found = f"{reading.memory_gib:g}"
        yield f"the machine has {found} GiB of memory, and {expected.memory_gib} are expected"


def _gpus(expected: Expected, reading: Reading) -> Iterator[str]:
    gpus, wanted = reading.gpus, expected.gpus
    if gpus is None or wanted is None:
        return
    if len(gpus) != wanted.count:
        yield f"the machine has {len(gpus)} GPUs, and {wanted.count} are expected"
    others = [each for each in gpus if wanted.model.casefold() not in each.model.casefold()]
    for gpu in others:
        model = gpu.model or "of no known model"
        yield f"the GPU {gpu.name} is {model}, and {wanted.model} is expected"
    version = wanted.firmware_version
    for gpu in gpus:
        if version and gpu.firmware_version != version:
            found = gpu.firmware_version or "of no known version"
            yield f"the firmware of the GPU {gpu.name} is {found}, and {version} is expected"


def describe_twin(serial: str, other: str) -> str:
    """Return the sentence that another machine has the same serial number."""
    return f"{serial} is the serial number of {other} too"


def find_same_serials(readings: Mapping[MachineKey, Reading]) -> Mapping[MachineKey, str]:
    """Return a sentence for each machine whose serial number another machine has too."""
    owners: defaultdict[str, list[MachineKey]] = defaultdict(list)
    for key, reading in readings.items():
        if reading.serial:
            owners[reading.serial.casefold()].append(key)
    return {
        key: describe_twin(readings[key].serial, other)
        for keys in owners.values()
        for key in keys
        for other in [min((each for each in keys if each != key), default="")]
        if other
    }
