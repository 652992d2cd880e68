"""Which spot Nodes give way, and whether the preemption of each has begun."""

from typing import assert_never

from capacity.leaving import Keys
from nodepool.contract import events as on
from nodepool.contract.keys import MachineKey
from nodepool.state.maps import put

GivesWay = (
    on.NodePreemptionRequested
    | on.PreemptionPending
    | on.NodePreempted
    | on.NodePreemptionWithdrawn
)
"""The messages that say whether a spot Node gives way."""


def fold_preemption(before: Keys, key: MachineKey, event: GivesWay | None) -> Keys:
    """Return the machines whose Nodes give way after an event; None is the end of the stay.

    The value of a machine says whether the preemption has begun: only before that, a request is
    taken back.
    """
    begun = before.get(key)
    match event:
        case None:
            return put(before, key, None)
        case on.NodePreemptionRequested():
            return before if begun is not None else before.set(key, False)
        case on.PreemptionPending() | on.NodePreempted():
            return before if begun else before.set(key, True)
        case on.NodePreemptionWithdrawn():
            return put(before, key, None) if begun is False else before
        case _:
            assert_never(event)
