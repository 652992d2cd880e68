"""The names that one machine has had in the inventory: whatever was on it is still there.

The serial number says which machine it is. It has one name at a time in service: it gets the next
one once its Node under the last one is gone, and is wiped if it was not.
"""

from dataclasses import dataclass
from typing import Final

from immutables import Map

from metal.machine import IN_SERVICE, Machine
from nodepool.contract.keys import MachineKey
from nodepool.state.values import replace

NO_NAME: Final = MachineKey("")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the machine with one serial number; each is empty if there is none.

    last: the name under which it was last in service.
    declared: the name that the inventory has for it now.
    """

    last: MachineKey = NO_NAME
    declared: MachineKey = NO_NAME


Serials = Map[str, Names]


def note_declaration(serials: Serials, key: MachineKey, before: Machine, after: Machine) -> Serials:
    """Return the names of all machines after one is declared, undeclared or added.

    If two names are declared at a time, the later one waits for the end of the other declaration.
    """
    old, new = serial_of(before), serial_of(after)
    if old and old != new and (names := serials.get(old, Names())).declared == key:
        serials = serials.set(old, replace(names, declared=NO_NAME))
    if not new:
        return serials
    is_added = bool(after.added_type) and not before.added_type
    names = serials.get(new, Names())
    if not is_added and old == new and names.declared:
        return serials
    return serials.set(new, Names(last=key if is_added else names.last, declared=key))


def note_service(serials: Serials, key: MachineKey, machine: Machine) -> Serials:
    """Return the names of all machines after a machine has changed, which may be in service.

    A machine of a snapshot that has no names is noted when it next changes.
    """
    serial = machine.added_serial.casefold()
    if not serial or not machine.added_type:
        return serials
    names = serials.get(serial, Names())
    is_served = machine.state in IN_SERVICE and not machine.rival and serial_of(machine) == serial
    if names.last == key or (names.last and not is_served):
        return serials
    return serials.set(serial, replace(names, last=key))


def compare_names(
    key: MachineKey, machine: Machine, last_key: MachineKey, last: Machine
) -> Machine:
    """Return a machine that may have had another name when it was last in service.

    It must not serve while it may have a Node under that name. It is wiped as a new one if it was
    not wiped since, and does not get back an earlier name before that.
    """
    rival, is_unwiped = "", bool(machine.added_type) and machine.is_unwiped
    if key != last_key:
        rival = _find_rival(machine, last_key, last)
        is_unwiped = machine.is_unwiped if machine.added_type else last.is_unwiped
    if (rival, is_unwiped) == (machine.rival, machine.is_unwiped):
        return machine
    return replace(machine, rival=rival, is_unwiped=is_unwiped)


def _find_rival(machine: Machine, key: MachineKey, last: Machine) -> str:
    if last.stay is not None:
        return f"{key} with this serial number has a Node: drain it first"
    if serial_of(last) == serial_of(machine):
        return f"{key} has this serial number too"
    if machine.added_type and _is_dirty(last, machine):
        return f"{key} with this serial number was not wiped: give it that name or a new one"
    return ""


def _is_dirty(last: Machine, machine: Machine) -> bool:
    is_used = machine.wipes and not last.wipes and last.assignment > 0
    return last.is_unwiped or is_used


def serial_of(machine: Machine) -> str:
    """Return the serial number of a machine as it is declared, in lower case; empty for none."""
    return "" if machine.declared is None else machine.declared.serial.casefold()
