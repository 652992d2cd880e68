"""Stores the `Wake` of a replica at the time that its service has named."""

from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from typing import Generic

from nodepool.contract.events import Wake
from nodepool.contract.log import Entry
from nodepool.engine.replica import Replica
from nodepool.host.leadership import Leadership
from nodepool.host.logs import Logger
from nodepool.host.timers import Timers
from nodepool.nats.log.commits import fire
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError
from nodepool.service import I, O, S

_WAKES = f".{Wake.__name__}"


class Firing(Generic[S, I, O]):
    """Fires the `Wake` of one replica over one connection.

    `clock` is the monotonic clock, in seconds, that `leadership` uses.
    """

    def __init__(
        self,
        replica: Replica[S, I, O],
        connection: Connection,
        leadership: Leadership,
        timers: Timers,
        log: Logger,
        clock: Callable[[], float],
    ) -> None:
        self._replica = replica
        self._connection = connection
        self._leadership = leadership
        self._timers = timers
        self._log = log
        self._clock = clock

    @property
    def fault(self) -> str:
        """Why due work is not done, as one line; empty if no work is due or the work is done."""
        fault = self._timers.fault
        if not fault:
            return ""
        due = self._replica.due()
        return fault if due is not None and due <= datetime.now(UTC) else ""

    def read(self, entry: Entry, now: float) -> None:
        """Note an entry that was read, which may be a `Wake`."""
        if entry.subject.endswith(_WAKES):
            self._timers.wake_read(entry.position, entry.time, now)

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the next `Wake`; None if nothing is due, or inputs are open."""
        due = self._replica.due()
        if due is None or self._replica.open:
            return None
        return self._compute_seconds_left(due, now)

    async def run(self) -> None:
        """Store the `Wake` that is due, if any; retry later if it cannot be stored."""
        replica, due = self._replica, self._replica.due()
        if due is None or replica.open or replica.is_behind:
            return
        read_to = replica.read_to
        now = self._clock()
        if self._timers.in_flight(read_to) or self._compute_seconds_left(due, now) > 0:
            return
        try:
            position = await fire(self._connection, replica, due)
        except (InDoubt, ServerRefusal, NatsError, OSError) as error:
            self._timers.note_failure(self._clock(), f"a wake is not stored: {error}")
            self._log.warning("wake failed", cause=str(error))
            return
        if position > read_to:
            leading = not self._leadership.following
            # The age of a `Wake` from another replica is unknown.
            sent_at = now if position != replica.last_wake else -inf
            self._timers.note_fired_wake(due, read_to, position, sent_at, leading=leading)

    def _compute_seconds_left(self, due: datetime, now: float) -> float:
        return self._timers.seconds_left(
            due,
            self._replica.read_to,
            leading=not self._leadership.following,
            wall=datetime.now(UTC),
            now=now,
        )
