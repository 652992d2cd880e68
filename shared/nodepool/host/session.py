"""One replica at work over one connection: restored, caught up, working in a loop, stopped."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Generic

from nodepool.contract.log import Entry
from nodepool.engine.proposal import Proposal
from nodepool.engine.replica import Replica
from nodepool.host.committing import Committing
from nodepool.host.firing import Firing
from nodepool.host.host import Host, Start, projector_of
from nodepool.host.leadership import Leadership
from nodepool.host.log_state import LogState
from nodepool.host.log_watch import LogWatch
from nodepool.host.reports import RoleReports
from nodepool.host.snapshots import Job
from nodepool.host.source import Progress
from nodepool.host.succession import succeed
from nodepool.host.timers import Timers
from nodepool.host.version import version_of
from nodepool.nats.log.commits import Committer
from nodepool.nats.log.publisher import Bus, Publisher
from nodepool.nats.log.reader import HEARTBEAT_S, Reader
from nodepool.nats.objects.saving import Storing, save
from nodepool.nats.objects.snapshots import stored_position
from nodepool.nats.objects.unwritten import Lag
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import (
    Conflict,
    ConnectionClosed,
    InDoubt,
    ServerRefusal,
    StreamChanged,
)
from nodepool.nats.wire.library import NatsError
from nodepool.service import I, O, S

IDLE_S = 1.0
"""The longest pause of the loop; a refused commit is tried again within this time."""
READ_MAX = 1_000
"""After this many messages, the other services of the process get a turn."""
SILENCE_S = 3 * HEARTBEAT_S
"""The longest silence of a working server."""


class ReplicaSession(Generic[S, I, O]):
    """The loop of one replica: read what has arrived, commit, fire a `Wake`, save.

    The session has caught up once it has read the last commit that its service had at the start;
    from then on it processes inputs. It is ready once it has processed all inputs that the log
    contained at the start. Later inputs are processed at once.
    """

    def __init__(
        self,
        host: Host[S, I, O],
        connection: Connection,
        publisher: Publisher,
        reader: Reader,
        replica: Replica[S, I, O],
        start: Start,
    ) -> None:
        self.connection = connection
        self.replica = replica
        self._host = host
        self._reader = reader
        self._start = start
        self._is_caught_up = False
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._roles = RoleReports(host.telemetry.log)
        self._bus = Bus(connection, publisher, start.log, host.settings.replicas)
        self._projector = projector_of(host, self._bus)
        self._leadership, self._log_state = Leadership(), LogState(connection)
        self._committer = Committer(connection, host.doubts.mark)
        timers = Timers()
        self.committing = Committing(
            replica, self._commit, self._leadership, self._projector, host, self._clock, timers
        )
        self.committing.may_store = lambda: reader.verification.holds
        self._firing = Firing(
            replica, connection, self._leadership, timers, host.telemetry.log, self._clock
        )
        is_watched, limit = host.service.projection is not None, host.settings.storage_limit
        self._log_watch = LogWatch(connection, self._leadership, limit, is_watched=is_watched)
        connection.on_reconnect += (timers.note_success, self._projector.invalidate)

    @property
    def progress(self) -> Progress | None:
        """The progress of the replica; None while it is not connected."""
        if not self.connection.is_connected:
            return None
        replica = self.replica
        return Progress(
            pending=self._reader.pending + replica.open,
            committed=replica.committed,
            leading=self._leadership.leading,
            failures=replica.failures,
            log=self._log_watch.figures,
        )

    @property
    def oldest_input_age(self) -> float | None:
        """For how many seconds the oldest input has waited; None while that is unknown.

        It is unknown while the log is read, because an input may have been processed long ago. If
        the server is silent, an input may have arrived at any time since then, so the age is at
        least the length of the silence.
        """
        if not self._is_caught_up:
            return None
        silent_s = time.monotonic() - self._reader.heard_at
        ages = [silent_s if silent_s > SILENCE_S else 0.0]
        now = datetime.now(UTC)
        moments = (self.replica.oldest, self._reader.oldest)
        ages += [(now - moment).total_seconds() for moment in moments if moment is not None]
        return max(ages)

    @property
    def lag(self) -> Lag | None:
        """How far the read model is behind; None if this replica does not write it."""
        return self._projector.lag

    @property
    def obstacle(self) -> str | None:
        """Return why the replica does not do its work now, as one line; None if it does."""
        if not self.connection.is_connected:
            return self.connection.fault
        for part in (self.committing, self._firing, self._log_state, self._projector):
            if part.fault:
                return part.fault
        if not self._host.ready.is_set():
            behind = self._reader.pending + self.replica.open
            return f"reading the log: {behind} messages behind"
        return None

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then leave nothing half done.

        Raises Stale, ConnectionClosed, or an error of the bus that a new session may not meet.
        """
        self._reader.arrived.set()
        background = (
            _set_after(stop, self._reader.arrived),
            *self._projector.tasks(),
            *self._log_watch.tasks(),
            self._log_state.run(),
            succeed(self.connection, self._leadership, self._clock),
        )
        tasks = [asyncio.create_task(coroutine) for coroutine in background]
        try:
            while not stop.is_set():
                await self._wait()
                await self._turn()
                self._roles.note(self._leadership, self.replica.committed)
                _raise_errors(tasks)
                if self.connection.is_closed:
                    raise ConnectionClosed(self.connection.fault)
            await self._finish()
        finally:
            self._host.ready.clear()
            for task in tasks:
                task.cancel()

    async def _turn(self) -> None:
        entries = await self._reader.take()
        for first in range(0, len(entries), READ_MAX):
            self._read(entries[first : first + READ_MAX])
            await asyncio.sleep(0)
        if not self.connection.is_connected or not self._reader.verification.holds:
            return
        if not self._caught_up():
            self._save()
            return
        if not self._is_caught_up:
            self._is_caught_up = True
            self._projector.compare(self.replica)
            self._leadership.caught_up(self._clock())
        await self.committing.run()
        if self._is_cursor_far_behind():
            await self.committing.claim()
        if not self._host.ready.is_set() and self._is_at_work():
            self._host.ready.set()
            self._host.telemetry.log.info(
                "caught up",
                committed=self.replica.committed,
                read_to=self.replica.read_to,
                seconds=round(self._clock() - self._began, 3),
            )
        await self._firing.run()
        self._projector.sweep(self.replica, self._leadership.leader_silent_s(self._clock()))
        self._save()

    async def _wait(self) -> None:
        """Wait until messages arrive, or something is due."""
        arrived = self._reader.arrived
        if not arrived.is_set():
            # A timer that sets the event costs a tenth of waiting with a timeout.
            timer = asyncio.get_running_loop().call_later(self._seconds_left(), arrived.set)
            await arrived.wait()
            timer.cancel()
        arrived.clear()

    def _seconds_left(self) -> float:
        now = self._clock()
        waits = (self.committing.seconds_left(now), self._firing.seconds_left(now))
        return max(0.001, min([IDLE_S, *(left for left in waits if left is not None)]))

    def _read(self, entries: Sequence[Entry]) -> None:
        began, now, caught_up = time.thread_time(), self._clock(), self._is_caught_up
        for entry in entries:
            if not self.replica.open:
                self._leadership.input_arrived(now)
            committed_by_another = self.replica.read(entry)
            if committed_by_another:
                self.committing.handle_unknown_commit(entry, now, caught_up=caught_up)
            self._firing.read(entry, now)
        self._host.log_clock.note(entries[-1].time, now)
        self._host.snapshots.note_work(time.thread_time() - began)

    def _is_at_work(self) -> bool:
        """Return whether the initial log is read, and processed or left to the leader."""
        is_read = self.replica.read_to >= self._start.end or not self._reader.pending
        return is_read and (not self.replica.open or self._leadership.following)

    def _caught_up(self) -> bool:
        last = max(self.replica.expected_sequence, self._reader.last)
        return last >= self._start.committed

    async def _commit(self, proposal: Proposal[S, I]) -> int:
        try:
            return await self._committer.commit(proposal)
        except Conflict:
            # The server finds no record if the head of the log was cut off beyond it.
            await self._log_state.look()
            if not 0 < proposal.expected_sequence < self._log_state.first:
                raise
            return await self._committer.commit(proposal, is_cut=True)

    def _is_cursor_far_behind(self) -> bool:
        """Return whether an idle replica must commit, because the log has grown or was cut."""
        replica, log, start = self.replica, self._log_state, self._log_state.growth.start
        moves = replica.read_to > replica.committed or replica.expected_sequence < start
        is_cut = start > replica.committed + 1 and moves
        return is_cut or log.last - replica.expected_sequence >= self._host.snapshots.every

    def _save(self) -> None:
        host, connection, log = self._host, self.connection, self._start.log
        host.snapshots.work(
            self.replica.committed,
            self._clock(),
            first=self._log_state.growth.start,
            save=self._saving(),
            look=partial(stored_position, connection, host.service.name, log),
        )

    def _saving(self) -> Job | None:
        """Return the job that saves a snapshot; None if saving is left to another replica."""
        if not self.replica.is_chained or self._leadership.following:
            return None
        host = self._host
        storing = Storing(
            self._bus,
            verify=self._reader.verification.check,
            replaces_newer=host.snapshots.ignored,
            newest=host.snapshots.newest,
            effort=host.snapshots.effort,
            release=version_of(),
        )
        return partial(save, storing, host.service, self.replica)

    async def _finish(self) -> None:
        if self.connection.is_connected:
            await self.committing.finish()
        with suppress(Conflict, InDoubt, ServerRefusal, StreamChanged, NatsError, OSError):
            await self._host.snapshots.finish(self.replica.committed, self._saving())
        with suppress(InDoubt, ServerRefusal, StreamChanged, NatsError, OSError):
            await self._projector.finish()


async def _set_after(stop: asyncio.Event, arrived: asyncio.Event) -> None:
    await stop.wait()
    arrived.set()


def _raise_errors(tasks: Iterable["asyncio.Task[None]"]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
