"""What became of the commands accepted last, by id, so that one sent again is not done again."""

from dataclasses import dataclass
from typing import Literal

from immutables import Map

from nodepool.persistent import Queue

RECEIPTS_MAX = 20_000
"""How many accepted commands a service knows by id; the oldest is forgotten first."""
Result = Literal["created", "configured", "unchanged", "deleted", "done"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a command that was accepted."""

    result: Result
    generation: int | None


@dataclass(frozen=True, slots=True)
class Receipts:
    """Receipts by the command's id, at most `RECEIPTS_MAX` of them."""

    known: Map[str, Receipt] = Map()
    order: Queue = Queue()

    def get(self, id: str) -> Receipt | None:
        """The receipt of the command with this id; None for one not known to be accepted."""
        return self.known.get(id)

    def put(self, id: str, receipt: Receipt) -> "Receipts":
        """The receipts with this one; the first of two for the same id stays."""
        if id in self.known:
            return self
        known, order = self.known.set(id, receipt), self.order.put(id)
        if len(order) > RECEIPTS_MAX:
            oldest = next(iter(order))
            known, order = known.delete(oldest), order.drop(oldest)
        return Receipts(known, order)
