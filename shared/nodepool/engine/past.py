"""A service as it was at a position of the log: a replica that reads up to there, and no further.

It is the same replica that works on the bus, so there is no second way to fold the log.
"""

from collections.abc import Iterable

from nodepool.contract.log import Entry
from nodepool.engine.replica import Replica
from nodepool.service import I, O, S


def read_into(replica: Replica[S, I, O], entries: Iterable[Entry]) -> None:
    """Let a replica read what it wants of the next messages of the log."""
    wants = replica.service.wants
    for entry in entries:
        if entry.position > replica.read_to and wants(entry.subject):
            replica.read(entry)


def state_of(replica: Replica[S, I, O]) -> S:
    """Return the state after all that the replica has read.

    A service that says something has the state of its last commit: what it would have made of the
    inputs after that, it had not said. A service that says nothing has folded every input.
    """
    if replica.service.outputs:
        return replica.safe.state
    while replica.open:
        replica.propose(even_if_quiet=True)
    return replica.state
