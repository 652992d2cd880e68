"""Which of many identical reports to write; pure."""

from dataclasses import dataclass

FIRST_S, LONGEST_S = 1.0, 60.0
"""The first and the longest pause before an identical report is written again; it doubles."""
KEPT = 256
"""How many different reports are remembered; beyond that, the oldest reports are forgotten."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A report that was written.

    due: when an identical report may be written again.
    pause_s: the pause until `due`.
    left_out: how many identical reports were not written since.
    """

    due: float
    pause_s: float
    left_out: int = 0


class Repeats:
    """Passes each new report at once, and identical reports at growing intervals.

    A report that has not come for twice its interval counts as new again.
    """

    def __init__(self) -> None:
        self._written: dict[str, _Written] = {}

    def left_out(self, report: str, now: float) -> int | None:
        """Return how many equal reports were left out; None if this report is left out too.

        `now` is in seconds of a monotonic clock.
        """
        last = self._written.pop(report, None)
        if last is None or now > last.due + last.pause_s:
            self._written[report] = _Written(now + FIRST_S, FIRST_S)
            if len(self._written) > KEPT:
                del self._written[next(iter(self._written))]
            return 0 if last is None else last.left_out
        if now < last.due:
            self._written[report] = _Written(last.due, last.pause_s, last.left_out + 1)
            return None
        pause_s = min(2 * last.pause_s, LONGEST_S)
        self._written[report] = _Written(now + pause_s, pause_s)
        return last.left_out
