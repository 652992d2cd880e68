"""A service on NATS: restored, listening, answering in commits, waking, stopping gracefully.

Several replicas of a service may run. Whoever commits leads; the others follow what is recorded and
output only what the leader has left unanswered for a while. None of that is needed for correctness:
the condition on each commit is.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Generic, TypeVar

from nats.errors import Error as NatsError

from nodepool.contract.events import Wake
from nodepool.contract.log import Entry
from nodepool.contract.messages import Message
from nodepool.contract.subjects import subject_of
from nodepool.engine.replica import CLOCK, Processed, Proposal, Replica, wake
from nodepool.host.settings import Settings, SettingsError, read
from nodepool.host.telemetry import Sample, Telemetry
from nodepool.nats.bus import (
    STREAM,
    Committer,
    Conflict,
    Connection,
    InDoubt,
    Publisher,
    ServerRefusal,
    Unreachable,
    connect,
    last_of,
    provision,
    publish,
)
from nodepool.nats.read_model import ReadModelWriter
from nodepool.nats.reader import Reader
from nodepool.nats.restore import restored, save
from nodepool.service import Service, commit_subject

S = TypeVar("S")
Gauges = Callable[[S], Iterable[Sample]]
"""What a service's state shows at a scrape, beside what every service shows."""
STANDBY_S = 0.5
"""How long a follower leaves an input to the leader."""
QUIET_S = 0.2
"""How long inputs without an output may wait for a commit that moves the cursor past them."""
SNAPSHOT_AFTER = 20_000
"""So many committed inputs are the most that a restart reads again, and a few seconds more."""
TIDY_S = 10.0
"""How long a leader is silent before a follower looks whether it left rows unwritten."""
BACK_OFF_S = 0.25
STALE_S = 5.0
"""A refused commit's rival is read long before this; else the replica begins anew."""


class Stale(Exception):
    """This replica cannot tell what became of the log; it begins anew."""


class Runtime(Generic[S]):
    """One replica of a service on NATS."""

    def __init__(
        self,
        service: Service[S],
        settings: Settings,
        gauges: Gauges[S] | None = None,
        *,
        snapshot_after: int = SNAPSHOT_AFTER,
    ) -> None:
        self.service = service
        self.settings = settings
        self.snapshot_after = snapshot_after
        self.replica: Replica[S] = Replica(service)
        samples = (lambda: gauges(self.replica.state)) if gauges is not None else None
        self.telemetry = Telemetry(service.name, settings, samples)
        self.port = -1
        self.ready = asyncio.Event()
        self._leading = True
        self._heard_leader = 0.0
        self._oldest_open = 0.0
        self._quiet_since = 0.0
        self._rung: tuple[datetime, int] | None = None
        self._rung_at = 0
        self._not_before = 0.0
        self._refused_at = 0.0
        self._answered_since = 0
        self._saving: asyncio.Task[int] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop`; failure with the bus delays it, nothing else ends it."""
        self.telemetry.ready = self._is_ready
        self.port = self.telemetry.serve(self.settings)
        try:
            while not stop.is_set():
                try:
                    await self._session(stop)
                except (Stale, InDoubt, ServerRefusal, Unreachable, NatsError, OSError) as failure:
                    self.ready.clear()
                    self.telemetry.log.warning("starting anew", cause=str(failure))
                    await asyncio.sleep(BACK_OFF_S)
        finally:
            self.telemetry.close()

    def _is_ready(self) -> bool:
        """Whether it has caught up with the log, and has a bus to output on."""
        return self.ready.is_set() and self._connection.is_connected

    async def _session(self, stop: asyncio.Event) -> None:
        connection = await _connected(self.settings.url, self.service.name, stop)
        if connection is None:
            return
        tasks: list[asyncio.Task[None]] = []
        reader: Reader | None = None
        try:
            connection.errors.append(
                lambda error: self.telemetry.log.error("bus error", cause=str(error))
            )
            connection.on_back.append(self.telemetry.reconnects.inc)
            await provision(connection, self.settings.replicas)
            self._publisher = Publisher(connection)
            await self._publisher.open()
            self._committer = Committer(connection)
            self._connection = connection
            self.replica = await restored(connection, self.service)
            last = await last_of(connection, STREAM, commit_subject(self.service.name))
            self._catch_up_to = last.position if last is not None else 0
            self._reader = reader = Reader(
                connection,
                STREAM,
                self.service.filters(),
                start=self.replica.committed + 1,
                wants=self.service.wants,
            )
            await reader.open()
            reader.arrived.set()
            connection.on_back.append(reader.arrived.set)
            self._rows = self._row_writer()
            if self._rows is not None:
                connection.on_back.append(self._rows.forget)
                tasks.append(asyncio.create_task(self._rows.run()))
            tasks.append(asyncio.create_task(_knock(stop, reader.arrived)))
            await self._loop(stop, tasks)
            await self._finish()
        finally:
            self.ready.clear()
            for task in tasks:
                task.cancel()
            if reader is not None:
                await reader.close()
            with suppress(NatsError, OSError):
                await connection.close()

    def _row_writer(self) -> ReadModelWriter[S] | None:
        rows = self.service.rows
        if rows is None:
            return None
        if self.settings.deprecated_conditions == "show" and rows.render_deprecated is not None:
            rows = replace(rows, render=rows.render_deprecated)
        return ReadModelWriter(self._connection, self._publisher, rows)

    async def _loop(self, stop: asyncio.Event, tasks: Iterable[asyncio.Task[None]]) -> None:
        self._leading, self._rung, self._refused_at, self._rung_at = True, None, 0.0, 0
        while not stop.is_set():
            await self._wait()
            self._read(await self._reader.taken())
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
            if not self._connection.is_connected or not self._caught_up():
                continue
            if not self.ready.is_set():
                self._compare_rows()
                self.ready.set()
            await self._answer()
            await self._ring()
            self._tidy()
            self._snapshot()
            self.telemetry.pending.set(self._reader.pending + self.replica.open)
            self.telemetry.position.set(self.replica.committed)
            self.telemetry.leading.set(self._leading)

    async def _wait(self) -> None:
        """Until messages arrive, or something is due."""
        arrived = self._reader.arrived
        if not arrived.is_set():
            # A timer that rings the same bell costs a tenth of what a wait with a limit does.
            timer = asyncio.get_running_loop().call_later(self._patience(), arrived.set)
            await arrived.wait()
            timer.cancel()
        arrived.clear()

    def _patience(self) -> float:
        now = self._time()
        waits = [1.0]
        if self.replica.quiet:
            waits.append(self._quiet_since + QUIET_S - now)
        if not self._leading and (self.replica.open or self.replica.quiet):
            waits.append(self._standby_until() - now)
        due = self.replica.due()
        if due is not None and not self.replica.open:
            waits.append(self._ring_in(due))
        return max(0.001, min(waits))

    def _time(self) -> float:
        return asyncio.get_running_loop().time()

    def _read(self, entries: Iterable[Entry]) -> None:
        wakes = f".{Wake.__name__}"
        for entry in entries:
            if not self.replica.open:
                self._oldest_open = self._time()
            settled_by_another = self.replica.read(entry)
            if settled_by_another:
                self._heard_leader = self._time()
                self._leading = self._leading and not self.ready.is_set()
                self._quiet_since = self._time()
                self._outdate_rows()
            if entry.subject.endswith(wakes):
                self._early(entry)

    def _early(self, entry: Entry) -> None:
        """Notes by how much a ring came too early for the log's clock, if it did."""
        due = self._rung[0] if self._rung is not None else None
        if due is not None and entry.time < due:
            self._not_before = self._time() + (due - entry.time).total_seconds()

    def _caught_up(self) -> bool:
        return self.replica.expected_sequence >= self._catch_up_to or (
            self._reader.last >= self._catch_up_to
        )

    def _standby_until(self) -> float:
        return max(self._heard_leader, self._oldest_open) + STANDBY_S

    async def _answer(self) -> None:
        if self.replica.is_behind:
            if self._time() - self._refused_at > STALE_S:
                raise Stale("a commit was refused, and the one before it is nowhere")
            return
        if not self._leading and self._time() < self._standby_until():
            return
        while self.replica.open:
            if not await self._round(even_if_quiet=not self._leading):
                return
        if self.replica.quiet and self._time() >= self._quiet_since + QUIET_S:
            await self._round(even_if_quiet=True)

    async def _round(self, *, even_if_quiet: bool) -> bool:
        """Answers a batch of open inputs; False where it has to be tried again later."""
        first_quiet = not self.replica.quiet
        proposal = self.replica.propose(even_if_quiet=even_if_quiet)
        if proposal is None:
            return False
        if not proposal.worth_storing:
            if first_quiet:
                self._quiet_since = self._time()
            self._processed(proposal, "quiet")
            return True
        return await self._commit(proposal)

    async def _commit(self, proposal: Proposal[S]) -> bool:
        proposal = self.telemetry.traced(proposal)
        began, result = self._time(), "stored"
        try:
            position = await self._committer.commit(self.service.name, proposal)
        except Conflict:
            result = "refused"
            self.replica.conflicted()
            self._leading, self._refused_at = False, self._time()
            self._heard_leader = self._refused_at
            self._outdate_rows()
        except InDoubt as doubt:
            result = "in doubt"
            self.replica.in_doubt()
            self._rewrite_rows()
            self.telemetry.log.warning("commit in doubt", cause=str(doubt))
        except ServerRefusal as refusal:
            result = "failed"
            self.replica.in_doubt()
            self.telemetry.log.error("commit failed", cause=str(refusal))
            await asyncio.sleep(BACK_OFF_S)
        else:
            self.replica.accepted(proposal, position)
            if not self._leading:
                self._leading = True
                self.telemetry.log.info("leading", position=position)
                self._rewrite_rows()
            self._processed(proposal, "stored")
        self.telemetry.committed(self._time() - began, result)
        return result == "stored"

    def _outdate_rows(self) -> None:
        if self._rows is not None:
            self._rows.outdated = True

    def _tidy(self) -> None:
        """Long after the last word of a leader, does what it may have left undone: its rows."""
        if self._rows is None or not self._rows.outdated or self.replica.open:
            return
        if self._time() - self._heard_leader > TIDY_S:
            self._compare_rows()

    def _compare_rows(self) -> None:
        """Has the stored rows compared with the state: either may be behind the other."""
        if self._rows is not None:
            self._rows.touched(self.replica.state, (), self.replica.committed)
            self._rows.forget()

    def _rewrite_rows(self) -> None:
        if self._rows is not None:
            self._rows.forget()

    def _processed(self, proposal: Proposal[S], outcome: str) -> None:
        self._answered_since += len(proposal.processed)
        if self._rows is not None:
            messages = _messages(proposal.processed)
            self._rows.touched(self.replica.state, messages, proposal.position)
        self.telemetry.handled(proposal.processed, outcome)

    def _ring_in(self, due: datetime) -> float:
        """In how many seconds to ring for this moment; a follower leaves it to the leader first."""
        if self._rung == (due, self.replica.read_to):
            return STANDBY_S
        seconds = (due - datetime.now(UTC)).total_seconds()
        return max(seconds, self._not_before - self._time()) + (0 if self._leading else STANDBY_S)

    async def _ring(self) -> None:
        due = self.replica.due()
        if due is None or self.replica.open or self.replica.is_behind:
            return
        if self.replica.read_to < self._rung_at:
            return  # The last ring is on its way.
        if self._rung == (due, self.replica.read_to) or self._ring_in(due) > 0:
            return
        self._rung = (due, self.replica.read_to)
        rung = wake(self.service.name, due, self.replica.read_to)
        try:
            self._rung_at = await publish(
                self._connection, subject_of(rung.data, CLOCK), rung.encode(), id=rung.id
            )
        except (InDoubt, Conflict):
            self._rung = None

    def _snapshot(self) -> None:
        if self._saving is not None and self._saving.done():
            saved, self._saving = self._saving, None
            if saved.exception() is not None:
                self.telemetry.log.warning("no snapshot", cause=str(saved.exception()))
        if self._leading and self._answered_since >= self.snapshot_after and self._saving is None:
            self._answered_since = 0
            self._saving = asyncio.create_task(
                save(self._connection, self._publisher, self.service, self.replica)
            )

    async def _finish(self) -> None:
        """Leaves nothing half done: what was looked at is committed, rows are written."""
        if self.replica.quiet and self._leading and self._connection.is_connected:
            await self._round(even_if_quiet=True)
        if self._saving is not None:
            with suppress(InDoubt, ServerRefusal, NatsError, OSError):
                await self._saving
        if self._rows is not None:
            with suppress(InDoubt, ServerRefusal, NatsError, OSError):
                await self._rows.flush()


def _messages(processed: Iterable[Processed[S]]) -> Iterable[Message]:
    for one in processed:
        message = one.input.message
        if isinstance(message, Message):
            yield message


async def _knock(stop: asyncio.Event, arrived: asyncio.Event) -> None:
    await stop.wait()
    arrived.set()


async def _connected(url: str, name: str, stop: asyncio.Event) -> Connection | None:
    """A connection as soon as there is a server; None where `stop` came first."""
    connecting = asyncio.create_task(connect(url, name, patience_s=None))
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if connecting in done:
        return connecting.result()
    connecting.cancel()
    return None


async def serve(
    service: Service[S],
    settings: Settings,
    stop: asyncio.Event,
    gauges: Gauges[S] | None = None,
) -> None:
    """Runs one replica of a service until `stop` is set."""
    await Runtime(service, settings, gauges).run(stop)


def main(service: Service[S], gauges: Gauges[S] | None = None) -> None:
    """Runs one replica of a service as a process of its own, until SIGTERM or SIGINT."""
    try:
        _loop_of(service, read(os.environ), gauges)
    except SettingsError as error:
        sys.exit(f"{service.name}: {error}")


def _spare_the_collector() -> None:
    """States are large and live long: looking through them often costs much and finds little."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _loop_of(service: Service[S], settings: Settings, gauges: Gauges[S] | None) -> None:
    async def run() -> None:
        _spare_the_collector()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, stop.set)
        if settings.stop_with_parent:
            loop.add_reader(sys.stdin.fileno(), stop.set)
        await serve(service, settings, stop, gauges)

    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(run())


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Where it is not built, the standard loop does the same, slower.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
