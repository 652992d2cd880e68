"""Machines that show the same serial number."""

from collections import defaultdict
from collections.abc import Iterable

from metal.inventory.comparing import find_same_serials
from metal.reading import Reading
from nodepool.contract.keys import MachineKey


class Twins:
    """The last reading of each machine, by its serial number."""

    def __init__(self) -> None:
        self._readings: dict[MachineKey, Reading] = {}
        self._owners: defaultdict[str, set[MachineKey]] = defaultdict(set)

    def note(self, key: MachineKey, reading: Reading) -> Iterable[MachineKey]:
        """Note a reading; return the other machines that have got or lost a twin by it."""
        last = self._readings.get(key)
        self._readings[key] = reading
        before = last.serial.casefold() if last is not None else ""
        after = reading.serial.casefold()
        if before == after:
            return ()
        self._owners[before].discard(key)
        self._owners[after].add(key)
        changed = (self._owners[each] for each in (before, after) if each)
        return {other for owners in changed for other in owners} - {key}

    def forget(self, key: MachineKey) -> Iterable[MachineKey]:
        """Forget a machine; return those that have lost a twin by it."""
        last = self._readings.pop(key, None)
        if last is None:
            return ()
        owners = self._owners[last.serial.casefold()]
        owners.discard(key)
        return {*owners}

    def find(self, key: MachineKey) -> str:
        """Return that another machine has the serial number of this one; empty if none has."""
        owners = self._owners.get(self._readings[key].serial.casefold(), set())
        return find_same_serials({each: self._readings[each] for each in owners}).get(key, "")
