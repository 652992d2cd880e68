"""Which machines of a zone are wiped now: a few at a time, in the order of their declarations.

A machine that waits for its turn is off, and no NodePool gets it. It needs a turn only once it can
be wiped.
"""

from dataclasses import dataclass
from typing import Final

from immutables import Map

from metal.machine import Machine
from nodepool.contract.keys import MachineKey
from nodepool.state.maps import mark, put

WIPES_MAX: Final = 64
"""A wipe begins only while fewer machines of its zone than this are wiped.

All load their image from the same server, which thousands of new machines would overload. With 64,
a zone of 5,000 machines is wiped in 80 times the time of a wipe.
"""


@dataclass(frozen=True, slots=True)
class Turns:
    """The wipes of one zone.

    taken: the machines that are wiped. A machine whose wipe cannot go on leaves its turn to others,
        and keeps its deadline. Once its wipe can go on, it does so at once, even if all turns are
        taken.
    waiting: the machines that can be wiped and wait, each with the position of its first
        declaration.
    """

    taken: Map[MachineKey, bool] = Map()
    waiting: Map[MachineKey, int] = Map()


def note_turn(turns: Turns, key: MachineKey, machine: Machine) -> Turns:
    """Return the wipes of a zone after one of its machines has changed.

    A machine of a snapshot that has no turns is noted when it next changes.
    """
    can_be_wiped = machine.can_be_wiped
    is_waiting = can_be_wiped and machine.awaits_wipe
    taken = mark(turns.taken, key, can_be_wiped and machine.wipe_due is not None)
    waiting = put(turns.waiting, key, machine.declaration if is_waiting else None)
    if taken is turns.taken and waiting is turns.waiting:
        return turns
    return Turns(taken, waiting)


def find_next(turns: Turns) -> MachineKey | None:
    """Return the machine whose turn has come; None if no machine waits or no turn is left."""
    if len(turns.taken) >= WIPES_MAX:
        return None
    return min(turns.waiting, key=lambda key: (turns.waiting[key], key), default=None)
