"""The positions that assignments filled in commits that the log may store after a loss of a Node.

A NodePool that loses a Node waits from the moment of the loss; a NodePool that waits already keeps
the start of its wait. Whether it waited is a matter of the log: an assignment that is stored after
the loss had not ended the wait. The allocator folds an assignment as soon as it decides on it, and
may read the loss after that.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from immutables import Map

from nodepool.contract.keys import PoolKey
from nodepool.service import Context
from nodepool.state.maps import put


class Fill(NamedTuple):
    """The earliest position of a NodePool that a commit fills.

    uid: the NodePool's.
    since: the start of the position.
    stored: the position of the commit record in the log; 0 until it is known.
    """

    uid: str
    since: datetime
    stored: int = 0


@dataclass(frozen=True, slots=True)
class Fills:
    """What was filled in commits that are stored after messages that are still to be read.

    every: the positions of each NodePool, a position for each commit.
    follows: the commit record that the commit follows whose own record is not known yet.
    """

    every: Map[PoolKey, tuple[Fill, ...]] = Map()
    follows: int = 0

    def add(self, key: PoolKey, uid: str, since: datetime, follows: int) -> "Fills":
        """Return the fills with a position that the present commit fills."""
        known = self.every.get(key, ())
        own = [fill.since for fill in known if not fill.stored and fill.uid == uid]
        stored = tuple(fill for fill in known if fill.stored)
        fills = (*stored, Fill(uid, min([since, *own])))
        return Fills(self.every.set(key, fills), follows)

    def settle(self, context: Context) -> "Fills":
        """Return the fills that are stored after an input, once the commit of the last is known."""
        if not self.every or context.follows == self.follows:
            return self
        every = self.every
        for key, fills in self.every.items():
            known = [fill._replace(stored=fill.stored or context.follows) for fill in fills]
            late = tuple(fill for fill in known if fill.stored > context.position)
            every = put(every, key, late or None)
        return Fills(every, context.follows)

    def restart(self, key: PoolKey, now: datetime) -> "Fills":
        """Return the fills after a grant that starts the wait of a NodePool again.

        A position that a later commit fills is still waited for then, so it starts again too.
        """
        fills = self.every.get(key)
        if fills is None:
            return self
        again = tuple(fill._replace(since=now) for fill in fills)
        return Fills(self.every.set(key, again), self.follows)

    def find_start(self, key: PoolKey, uid: str, position: int) -> datetime | None:
        """Return the earliest position of a NodePool that a later commit fills; None for none."""
        fills = self.every.get(key, ())
        late = [
            fill.since
            for fill in fills
            if fill.uid == uid and (not fill.stored or fill.stored > position)
        ]
        return min(late, default=None)


NO_FILLS: Final = Fills()
