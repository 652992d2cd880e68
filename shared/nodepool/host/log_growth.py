"""Finds where the newest bytes of the log begin; pure.

A service holds the log from its last commit and snapshot on. It moves both on after some number of
positions, but large messages take few positions: a disk might be full first. Then no commit and no
snapshot could be stored, so that the log could never be trimmed.
"""

from collections import deque
from typing import Final

HELD_BYTES: Final = 64 << 20
"""About how many bytes of the log a service holds at most, while it is at work."""
MARKS: Final = 16
"""The number of steps in which HELD_BYTES are counted."""


class LogGrowth:
    """Counts the bytes that are added to the log.

    start: the log has about HELD_BYTES from this position on; its first position if it has less.
    """

    def __init__(self, held: int | None = None) -> None:
        self.start = 1
        self._held = HELD_BYTES if held is None else held
        self._marks = deque[tuple[int, int]]()
        self._before = 0, 0, 0
        self._written = 0

    def look(self, first: int, last: int, bytes: int) -> None:
        """Note the positions and the size of the log."""
        was_first, was_last, was_bytes = self._before
        if not self._marks:  # Only the average size is known yet.
            self._written = bytes
            excess = max(0, bytes - self._held)
            self.start = first + (last - first + 1) * excess // max(1, bytes)
        else:
            trimmed = (first - was_first) * was_bytes // max(1, was_last - was_first + 1)
            self._written += max(0, bytes + trimmed - was_bytes)
        self._before = first, last, bytes
        if not self._marks or self._written - self._marks[-1][1] >= self._held // MARKS:
            self._marks.append((last + 1, self._written))
        while self._marks[0][1] <= self._written - self._held:
            self.start = max(self.start, self._marks.popleft()[0])
            if not self._marks:
                self._marks.append((last + 1, self._written))
        self.start = max(self.start, first)
