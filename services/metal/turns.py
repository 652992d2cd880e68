"""Whose turn it is to be wiped: a few machines of a zone at a time, those declared first in front.

A machine that waits is off, and free for nobody. It needs a turn only once it can be wiped.
"""

from dataclasses import dataclass
from typing import Final

from immutables import Map

from metal.machine import Machine
from nodepool.contract.keys import MachineKey
from nodepool.state.maps import mark, put

WIPES_MAX: Final = 64
"""How many machines of a zone are wiped at a time.

Each loads its image from the same server, which a new zone would ask for thousands at once. With
64, a zone of 5,000 machines is wiped in 80 times the time of a wipe.
"""


@dataclass(frozen=True, slots=True)
class Turns:
    """The wipes of one zone.

    taken: the machines that are wiped. A machine that cannot be wiped on keeps its time, and leaves
        its turn to others.
    waiting: the machines that can be wiped and wait, each with the number of its declaration.
    """

    taken: Map[MachineKey, bool] = Map()
    waiting: Map[MachineKey, int] = Map()


def note_turn(turns: Turns, key: MachineKey, machine: Machine) -> Turns:
    """Return the wipes of a zone after one of its machines has changed.

    A machine of a snapshot that has no turns is noted when it next changes.
    """
    can_go_on = machine.can_be_wiped
    is_waiting = can_go_on and machine.awaits_wipe
    taken = mark(turns.taken, key, can_go_on and machine.wipe_due is not None)
    waiting = put(turns.waiting, key, machine.declaration if is_waiting else None)
    if taken is turns.taken and waiting is turns.waiting:
        return turns
    return Turns(taken, waiting)


def find_next(turns: Turns) -> MachineKey | None:
    """Return the machine whose turn has come; None if none waits, or if all turns are taken."""
    if len(turns.taken) >= WIPES_MAX:
        return None
    return min(turns.waiting, key=lambda key: (turns.waiting[key], key), default=None)
