"""One replica at work over one connection: restored, caught up, working in a loop, stopped."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Generic

from nats.errors import Error as NatsError

from nodepool.contract.log import Entry
from nodepool.engine.replica import Replica
from nodepool.host.committing import Committing
from nodepool.host.firing import Firing
from nodepool.host.host import Host, Start, projector_of
from nodepool.host.leadership import Leadership
from nodepool.host.log_watch import LogWatch
from nodepool.host.reports import RoleReports
from nodepool.host.source import Progress
from nodepool.host.succession import Succession
from nodepool.host.timers import Timers
from nodepool.host.version import version_of
from nodepool.nats.api import check_limits, last_message, last_position
from nodepool.nats.buckets import Bus
from nodepool.nats.committer import Committer
from nodepool.nats.connection import Connection
from nodepool.nats.consumers import REPLICA, SERVICE, VERSION
from nodepool.nats.errors import ConnectionClosed, InDoubt, ServerRefusal
from nodepool.nats.publisher import Publisher
from nodepool.nats.reader import HEARTBEAT_S, Reader
from nodepool.nats.snapshots import restore, save, stored_position
from nodepool.nats.streams import STREAM, provision, verify_log
from nodepool.nats.unwritten import Lag
from nodepool.service import I, O, S, commit_subject

IDLE_S = 1.0
"""The longest pause of the loop."""
SILENCE_S = 3 * HEARTBEAT_S
"""A server that is at work is not silent for longer."""


@asynccontextmanager
async def open_session(
    host: Host[S, I, O], connection: Connection
) -> "AsyncIterator[Session[S, I, O]]":
    """A session on a bus that is provisioned, restored from the newest snapshot, and reading."""
    service = host.service
    check_limits(connection)
    log = await provision(connection, host.settings.replicas)
    publisher = Publisher(connection)
    await publisher.open()
    if host.snapshots.ignored:
        replica, unused = Replica(service, log=log), "NODEPOOL_SNAPSHOTS is ignore"
    else:
        replica, unused = await restore(connection, service, log)
    if unused:
        host.telemetry.log.warning("snapshot not used", cause=unused)
    host.snapshots.restored(replica.committed)
    last_commit = await last_message(connection, STREAM, commit_subject(service.name))
    reader = Reader(
        connection,
        STREAM,
        service.filters(),
        start=replica.committed + 1,
        wants=service.wants,
        verify=partial(verify_log, connection, log),
    )
    reader.metadata = {
        SERVICE: service.name,
        VERSION: version_of(),
        REPLICA: host.doubts.mark,
    }
    try:
        await reader.open()
        committed = last_commit.position if last_commit is not None else 0
        start = Start(log, committed, await last_position(connection, STREAM))
        yield Session(host, connection, publisher, reader, replica, start)
    finally:
        host.snapshots.abandon()
        await reader.close()


class Session(Generic[S, I, O]):
    """The loop of one replica: read what has arrived, commit, fire a `Wake`, save.

    It has caught up once it has read to its service's last commit at the start, and processes
    inputs from then on. It is ready once none is left of those that lay in the log at the start:
    what is sent to it after that is processed at once.
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
        self._publisher = publisher
        self._reader = reader
        self._start = start
        self._is_caught_up = False
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._roles = RoleReports(host.telemetry.log)
        bus = Bus(connection, publisher, start.log, host.settings.replicas)
        self._projector = projector_of(host, bus)
        self._leadership = Leadership()
        timers = Timers()
        self.committing = Committing(
            replica,
            Committer(connection, host.doubts.mark).commit,
            self._leadership,
            self._projector,
            host,
            self._clock,
            timers,
        )
        self._firing = Firing(
            replica, connection, self._leadership, timers, host.telemetry.log, self._clock
        )
        is_watched, limit = host.service.projection is not None, host.settings.storage_limit
        self._log_watch = LogWatch(connection, self._leadership, limit, is_watched=is_watched)
        connection.on_reconnect.append(reader.arrived.set)
        connection.on_reconnect.append(timers.succeeded)
        connection.on_reconnect.append(self._projector.invalidate)

    @property
    def progress(self) -> Progress | None:
        """How far the replica is; None while it is not connected."""
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
        """For how many seconds the oldest input has waited; None while that is not known.

        While the log is read, an input may have been processed long ago. While the server is
        silent, another one may have arrived whenever it has not been heard of since.
        """
        if not self._is_caught_up:
            return None
        silent_s = time.monotonic() - self._reader.heard_at
        ages = [silent_s if silent_s > SILENCE_S else 0.0]
        now = datetime.now(UTC)
        for moment in (self.replica.oldest, self._reader.oldest):
            if moment is not None:
                ages.append((now - moment).total_seconds())
        return max(ages)

    @property
    def lag(self) -> Lag | None:
        """What of the read model is not written; None where this replica does not write it."""
        return self._projector.lag

    @property
    def obstacle(self) -> str | None:
        """Why it does not do its work now, as one line; None where it does."""
        if not self.connection.is_connected:
            return self.connection.fault
        if fault := self.committing.fault or self._firing.fault:
            return fault
        if not self._host.ready.is_set():
            behind = self._reader.pending + self.replica.open
            return f"reading the log: {behind} messages behind"
        return None

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, then leaves nothing half done.

        Raises Stale, ConnectionClosed, or an error of the bus that a new session may not meet.
        """
        self._reader.arrived.set()
        background = (
            _set_after(stop, self._reader.arrived),
            *self._projector.tasks(),
            *self._log_watch.tasks(),
            Succession(self.connection, self._leadership, self._clock).run(),
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
        if entries:
            self._read(entries)
        if not self.connection.is_connected or not self._caught_up():
            return
        if not self._is_caught_up:
            self._is_caught_up = True
            self._projector.compare(self.replica)
            self._leadership.caught_up(self._clock())
        await self.committing.run()
        if not self._host.ready.is_set() and self._is_at_work():
            self._host.ready.set()
            seconds = round(self._clock() - self._began, 3)
            self._host.telemetry.log.info(
                "caught up",
                committed=self.replica.committed,
                read_to=self.replica.read_to,
                seconds=seconds,
            )
        await self._firing.run()
        self._projector.sweep(self.replica, self._leadership.leader_silent_s(self._clock()))
        self._save()

    async def _wait(self) -> None:
        """Until messages arrive, or something is due."""
        arrived = self._reader.arrived
        if not arrived.is_set():
            # A timer that sets the event costs a tenth of what waiting with a timeout does.
            timer = asyncio.get_running_loop().call_later(self._seconds_left(), arrived.set)
            await arrived.wait()
            timer.cancel()
        arrived.clear()

    def _seconds_left(self) -> float:
        now = self._clock()
        waits = (self.committing.seconds_left(now), self._firing.seconds_left(now))
        return max(0.001, min([IDLE_S, *(left for left in waits if left is not None)]))

    def _read(self, entries: Iterable[Entry]) -> None:
        now, caught_up = self._clock(), self._is_caught_up
        for entry in entries:
            if not self.replica.open:
                self._leadership.input_arrived(now)
            committed_by_another = self.replica.read(entry)
            if committed_by_another:
                self.committing.followed(entry, now, caught_up=caught_up)
            self._firing.read(entry, now)

    def _is_at_work(self) -> bool:
        """Whether what lay in the log at the start is read, and processed or left to the leader."""
        is_read = self.replica.read_to >= self._start.end or not self._reader.pending
        return is_read and (not self.replica.open or self._leadership.following)

    def _caught_up(self) -> bool:
        last = max(self.replica.expected_sequence, self._reader.last)
        return last >= self._start.committed

    def _save(self) -> None:
        host, connection, log = self._host, self.connection, self._start.log
        service, copies = host.service, host.settings.replicas
        saving = partial(save, connection, self._publisher, service, self.replica, log, copies)
        may_save = self.replica.is_chained and not self._leadership.following
        host.snapshots.work(
            self.replica.committed,
            self._clock(),
            save=saving if may_save else None,
            look=partial(stored_position, connection, service.name, log),
        )

    async def _finish(self) -> None:
        if self.connection.is_connected:
            await self.committing.finish()
        with suppress(InDoubt, ServerRefusal, NatsError, OSError):
            await self._host.snapshots.finish()
        with suppress(InDoubt, ServerRefusal, NatsError, OSError):
            await self._projector.finish()


async def _set_after(stop: asyncio.Event, arrived: asyncio.Event) -> None:
    await stop.wait()
    arrived.set()


def _raise_errors(tasks: Iterable["asyncio.Task[None]"]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
