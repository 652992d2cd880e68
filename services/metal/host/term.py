"""The memory of the poller while its replica leads: each machine, its next reading, and twins."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from metal.host.twins import Twins
from metal.machine import Machine
from metal.replies import Trouble
from metal.sight import Sight
from nodepool.contract.keys import MachineKey

NEVER: Final = float("inf")


@dataclass
class Polled:
    """The state of one machine for the poller, since this replica leads.

    due: when it is read next. is_busy: whether it is looked at now.
    interrupt: ends the reading that is under way; None if none is.
    said_at: the position of what was last said of it.
    sight: the result of its readings. complete_at: when it was last read completely.
    is_complete: whether its last reading has all parts.
    check: the last check for which it was read completely.
    is_unreadable: whether a part could not be read for as long as a check has waited for it.
    failures: the failed calls in a row. trouble: the kind of the failure that was said.
    """

    due: float = NEVER
    is_busy: bool = False
    interrupt: Callable[[], object] | None = None
    said_at: int = 0
    sight: Sight | None = None
    complete_at: float = -NEVER
    is_complete: bool = False
    check: int = 0
    is_unreadable: bool = False
    failures: int = 0
    trouble: Trouble | None = None

    def note_complete(self, now: float, age_s: float) -> None:
        """Remember a complete reading.

        age_s: how much older the first complete reading counts than it is. The first readings of
            all machines come together, and the later ones must not.
        """
        self.complete_at = now if self.complete_at > -NEVER else now - age_s

    def note_check(self, machine: Machine, checks: int, now: datetime, *, is_whole: bool) -> None:
        """Remember for which check a complete reading counts.

        checks: the number of the last check when the reading began.
        is_whole: whether all parts could be read. A reading without a part counts for no check that
            may still wait for the part. Once the check is due the reading counts, and what could
            not be read is a reason against the machine, unless the check was only to look.
        """
        seen, check = machine.seen, machine.check
        is_late = check is not None and check.due <= now
        if is_whole or is_late:
            self.check = checks
        else:
            self.check = max(self.check, seen.check if seen is not None else 0)
        if is_whole:
            self.is_unreadable = False
        elif check is not None and is_late and check.purpose != "look":
            self.is_unreadable = True

    def forget(self) -> None:
        """Forget the readings of another controller."""
        self.sight, self.complete_at, self.check = None, -NEVER, 0
        self.is_unreadable, self.failures, self.trouble = False, 0, None


@dataclass
class Term:
    """A period in which this replica leads."""

    polled: dict[MachineKey, Polled] = field(default_factory=dict)
    queue: list[tuple[float, MachineKey]] = field(default_factory=list)
    twins: Twins = field(default_factory=Twins)

    def put(self, key: MachineKey, due: float) -> None:
        """Schedule a reading of a machine, unless an earlier reading is scheduled."""
        polled = self.polled.setdefault(key, Polled())
        if due < polled.due:
            polled.due = due
            heapq.heappush(self.queue, (due, key))

    def take(self, now: float) -> Iterable[MachineKey]:
        """Yield the machines whose next reading is due."""
        while self.queue and self.queue[0][0] <= now:
            due, key = heapq.heappop(self.queue)
            polled = self.polled.get(key)
            if polled is not None and polled.due == due:
                polled.due = NEVER
                yield key
