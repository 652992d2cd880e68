"""Runs the archiver. Several at once do no harm: each goes on where the others have stopped."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial

from archiver.host.patience import Patience
from archiver.host.recording import Recorder
from archiver.host.sets import SnapshotSets
from archiver.host.settings import ArchiverSettings, read_archiver
from archiver.host.telemetry import NAME, Telemetry
from archiver.host.trimming import Trimming
from archiver.proof import Proof
from nodepool.archive.manifests import Manifest
from nodepool.archive.storage.archive import Archive
from nodepool.archive.storage.checking import verify
from nodepool.archive.storage.errors import ArchiveError, Damaged, StoreError
from nodepool.archive.storage.store import Store
from nodepool.contract import archive_metrics
from nodepool.contract import metrics as contract
from nodepool.contract.log import LogId
from nodepool.contract.metrics import Sample
from nodepool.host.edge import FAULTS, pause
from nodepool.host.process import ending_with_a_line, run_until_stopped
from nodepool.host.settings import SettingsError
from nodepool.host.version import version_of
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, StreamInfo
from nodepool.nats.log.verification import verify_log
from nodepool.nats.objects.following import present, until_closed
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.library import NatsError
from nodepool.nats.wire.waiting import until_first


def main() -> None:
    """Run the archiver until SIGTERM or SIGINT; settings come from the environment."""
    with ending_with_a_line(NAME):
        settings = read_archiver(os.environ)
        run_until_stopped(lambda stop: Archiver(settings).run(stop), settings.service)


class Archiver:
    """One archiver.

    fault: why it cannot work, as one line; empty while it works.
    port: where it serves metrics and health; -1 if nowhere.
    """

    def __init__(self, settings: ArchiverSettings) -> None:
        self._settings = settings
        try:
            self._store = Store(settings.archive, settings.patience_seconds)
        except StoreError as error:
            raise SettingsError(f"NODEPOOL_ARCHIVE: {error}") from None
        self._telemetry = telemetry = Telemetry(settings.service, self._samples)
        self._recording, self._copying, self._verifying, trimming = (
            Patience(telemetry.count_failure) for _ in range(4)
        )
        self._set_due = asyncio.Event()
        self._trimming = Trimming(
            settings, trimming, lambda: self._proof.position, self._set_due, telemetry.log
        )
        self._connection: Connection | None = None
        self._archive: Archive | None = None
        self._recorder: Recorder | None = None
        self._faults: int | None = None
        self._proof = Proof()
        self._set_at = self._verified_at = 0.0
        self._idle_since = time.monotonic()
        self._ahead_s = 0.0
        self._opened, self._doubted = asyncio.Event(), asyncio.Event()
        self.fault = "connecting to the bus"
        self.port = -1

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; a fault of the bus or of the store only delays the archiver."""
        telemetry = self._telemetry
        self.port = telemetry.serve(self.obstacle)
        telemetry.log.info("started", version=version_of(), **self._settings.list_settings())
        async with telemetry.at_work(stop):
            try:
                await until_first(stop.wait(), self._work(), self._verify())
                telemetry.log.info("stopping")
            finally:
                await self._store.close()

    def obstacle(self) -> str | None:
        """Return why the archiver is not ready, as one line; None if it is ready."""
        connection = self._connection
        if connection is not None and not connection.is_connected:
            return connection.fault
        return self.fault or self._recording.fault or None

    async def _work(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._session()
            except (ArchiveError, StoreError, *FAULTS) as error:
                self.fault = str(error) or type(error).__name__
                if isinstance(error, Damaged):
                    self._doubted.set()
                self._telemetry.count_restart(self.fault)
            failures = await pause(failures, time.monotonic() - began)

    async def _session(self) -> None:
        service, telemetry = self._settings.service, self._telemetry
        connection = await connect(
            service.url, NAME, patience_s=None, access=service.access, on_fault=self._note
        )
        self._connection = connection
        connection.on_reconnect.append(telemetry.count_reconnect)
        telemetry.log_connection(connection)
        try:
            self.fault = "no control plane has been set up on the bus"
            info = await present(connection, STREAM)
            # The clock that stamps messages also measures how long they wait.
            self._ahead_s = info.time.timestamp() - time.monotonic()
            self.fault = ""
            archive = await self._recording.insist(
                lambda: Archive.open(self._store, info.log, info.first)
            )
            # Before anything is added: the log may have been set back, and be another one since.
            await check_end(connection, archive)
            self._archive = archive
            self._opened.set()
            hours = self._settings.snapshot_hours
            copying = SnapshotSets(
                connection, archive, hours, self._set_due, self._copying, self._note_set
            )
            telemetry.log.info("ready", position=archive.head.last)
            await until_first(
                self._record(connection, archive, info),
                copying.run(),
                self._trimming.run(connection, archive),
                until_closed(connection),
            )
        finally:
            self._connection = self._recorder = None
            connection.on_disconnect.clear()
            with suppress(NatsError, OSError):
                await connection.close()

    async def _record(self, connection: Connection, archive: Archive, info: StreamInfo) -> None:
        """Write the log into the archive, and begin anew wherever another program has added."""
        while True:
            await check_end(connection, archive)
            check = partial(verify_log, connection, info.log, is_whole=True)
            reader = Reader(connection, STREAM, [], start=archive.head.last + 1, verify=check)
            await reader.open()
            try:
                self._recorder = Recorder(
                    archive, reader, self._settings.limits, self._recording, self._note_segment
                )
                await self._recorder.run()
            finally:
                self._recorder, self._idle_since = None, time.monotonic()
                await reader.close()
            self._telemetry.log.info("another archiver came first", position=archive.head.last)

    async def _verify(self) -> None:
        """Read the whole archive back at the start, from time to time, and once it is doubted."""
        await self._opened.wait()
        while True:
            try:
                report = await self._verifying.insist(lambda: verify(self._store))
            except ArchiveError as error:
                self._faults = 1
                self._telemetry.log.error("archive not read back", cause=str(error))
            else:
                self._faults, self._verified_at = report.faults, time.time()
                self._proof = self._proof.reach(report.sound, report.faults)
                self._telemetry.note_report(report)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.verify_hours * 3_600):
                    await self._doubted.wait()
            self._doubted.clear()

    def _note(self, fault: str) -> None:
        if self._connection is None:
            self.fault = fault  # Once open, the connection reports its own faults.
        self._telemetry.log.warning("cannot connect", cause=fault)

    def _note_segment(self, manifest: Manifest) -> None:
        self._proof = self._proof.add(manifest.first, manifest.last)
        self._telemetry.note_segment(manifest)

    def _note_set(self, made: datetime) -> None:
        if made.timestamp() != self._set_at:
            self._set_at = made.timestamp()
            self._telemetry.log.info("snapshot set", made=made.isoformat())

    def _samples(self) -> Iterator[Sample]:
        """Yield the samples of a scrape, which runs in its own thread."""
        connection, archive, recorder = self._connection, self._archive, self._recorder
        yield Sample(contract.BUILD_INFO, (version_of(),), 1)
        yield Sample(contract.READY, (), self.obstacle() is None)
        yield Sample(contract.CONNECTED, (), connection is not None and connection.is_connected)
        yield Sample(archive_metrics.READ_BACK, (), self._proof.position)
        yield Sample(archive_metrics.SET_TIME, (), self._set_at)
        yield Sample(archive_metrics.VERIFIED_TIME, (), self._verified_at)
        if self._faults is not None:
            yield Sample(archive_metrics.FAULTS, (), self._faults)
        if archive is not None:
            yield Sample(archive_metrics.POSITION, (), archive.head.last)
            yield Sample(archive_metrics.SEGMENTS, (), archive.segments)
            yield Sample(archive_metrics.BYTES, (), archive.bytes)
        yield from self._trimming.samples()
        now, since = time.monotonic(), self._idle_since
        if recorder is not None:
            oldest = recorder.oldest
            since = now if oldest is None else oldest.timestamp() - self._ahead_s
            yield Sample(archive_metrics.LAG_MESSAGES, (), recorder.waiting)
        yield Sample(archive_metrics.LAG_SECONDS, (), max(0.0, now - since))


async def check_end(connection: Connection, archive: Archive) -> None:
    """Raise LogChanged unless the log holds the last message of the archive, and what follows."""
    head = archive.head
    ended = datetime.fromisoformat(head.ended) if head.ended else None
    await verify_log(connection, LogId(archive.log), head.last, ended, is_whole=True)
