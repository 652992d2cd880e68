"""Machines that show the same serial number."""

from collections import defaultdict
from collections.abc import Iterable

from metal.inventory.comparing import describe_twin, find_same_serials
from metal.reading import Reading
from nodepool.contract.keys import MachineKey


class Twins:
    """The last reading of each machine, by its serial number."""

    def __init__(self) -> None:
        self._readings: dict[MachineKey, Reading] = {}
        self._owners: defaultdict[str, set[MachineKey]] = defaultdict(set)

    def note(self, key: MachineKey, reading: Reading) -> Iterable[MachineKey]:
        """Note a reading; return the other machines that got or lost a twin by this reading."""
        last = self._readings.get(key)
        self._readings[key] = reading
        before = last.serial.casefold() if last is not None else ""
        after = reading.serial.casefold()
        if before == after:
            return ()
        changed = self._leave(before, key)
        if after:
            changed |= self._owners[after]
            self._owners[after].add(key)
        return changed - {key}

    def forget(self, key: MachineKey) -> Iterable[MachineKey]:
        """Forget a machine; return the other machines that lost a twin."""
        last = self._readings.pop(key, None)
        return () if last is None else self._leave(last.serial.casefold(), key)

    def _leave(self, serial: str, key: MachineKey) -> set[MachineKey]:
        """Return the other machines with a serial number that a machine does not show any more.

        A number that no machine shows is forgotten: a controller may show a new number each time.
        """
        owners = self._owners.get(serial, set())
        owners.discard(key)
        if not owners:
            self._owners.pop(serial, None)
        return {*owners}

    def find(self, key: MachineKey, recalled: str = "", declared: Iterable[MachineKey] = ()) -> str:
        """Return which other machine shows the same serial number, as a sentence; empty if none.

        recalled: what the log says of the machine. A twin that an earlier process has found counts
            until that twin was read again, because its controller may be slow.
        declared: the machines of the inventory; a twin that is not there any more does not count.
        """
        serial = self._readings[key].serial
        owners = self._owners.get(serial.casefold(), set())
        found = find_same_serials({each: self._readings[each] for each in owners}).get(key, "")
        if found or not recalled:
            return found
        unread = (each for each in declared if each not in self._readings)
        is_unread = any(describe_twin(serial, each) == recalled for each in unread)
        return recalled if is_unread else ""
