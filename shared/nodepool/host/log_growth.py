"""Where the newest bytes of the log begin; pure.

A service holds the log from its last commit and snapshot on. It moves both on after some number of
positions, but large messages make few positions: a disk might be full before, and then neither a
commit nor a snapshot could be stored any more, so that the log could never be trimmed.
"""

from collections import deque
from typing import Final

HELD_BYTES: Final = 64 << 20
"""How many bytes of the log a service holds about, at most, while it is at work."""
MARKS: Final = 16
"""In so many steps the bytes are counted."""


class LogGrowth:
    """Counts what is added to the log, from one look to the next.

    start: the position from which on the log has HELD_BYTES, about; the first one if it has less.
    """

    def __init__(self, held: int | None = None) -> None:
        self.start = 1
        self._held = HELD_BYTES if held is None else held
        self._marks = deque[tuple[int, int]]()
        self._before = 0, 0, 0
        self._written = 0

    def look(self, first: int, last: int, bytes: int) -> None:
        """Note how the log is now."""
        was_first, was_last, was_bytes = self._before
        if not self._marks:  # Nothing is known yet but the average.
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
