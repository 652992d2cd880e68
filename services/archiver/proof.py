"""Up to which position the archive was read back; pure.

Each segment is read back when it was stored, and from time to time the whole archive. A position is
proven if everything before it was read back, too.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proof:
    """What was read back.

    whole: up to which position, the last time that the whole archive was read back.
    first, last: the positions of the segments that were read back, one after the other, since.
    """

    whole: int = -1
    first: int = 0
    last: int = -1

    @property
    def position(self) -> int:
        """The position up to which all was read back; 0 if nothing was."""
        reaches = self.first <= self.whole + 1
        return max(self.last if reaches else self.whole, self.whole, 0)

    def add(self, first: int, last: int) -> "Proof":
        """Return the proof after one more segment was read back."""
        if first == self.last + 1:
            return Proof(self.whole, self.first, last)
        return Proof(self.position if self.whole >= 0 else self.whole, first, last)

    def reach(self, whole: int, faults: int = 0) -> "Proof":
        """Return the proof after the whole archive was read back up to a position.

        faults: how many faults were found. Behind the first of them, nothing is proven any more,
            even if it was read back when it was stored.
        """
        return Proof(whole) if faults else Proof(whole, self.first, self.last)
