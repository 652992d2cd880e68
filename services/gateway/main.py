"""Runs one replica of the gateway: any number of them share the work."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import uuid4

from gateway.host.counting import count_stored
from gateway.host.desk import Desk
from gateway.host.door import Door
from gateway.host.intake import QUEUE, Intake
from gateway.host.members import MembersFile
from gateway.host.past.answering import Past
from gateway.host.reading import ModelReader
from gateway.host.settings import GatewaySettings, read_gateway
from gateway.host.telemetry import ASKED, COMMANDS, NAME, OBSERVATIONS, Telemetry
from gateway.model import ReadModel
from nodepool.client.sender import PendingOutcomes
from nodepool.contract import metrics as contract
from nodepool.contract.door import DOOR
from nodepool.contract.events import CapacityFound, CommandRefused
from nodepool.contract.gateway_metrics import BYTES, BYTES_MAX, WAITING
from nodepool.contract.metrics import Sample
from nodepool.host.edge import FAULTS, pause
from nodepool.host.process import ending_with_a_line, run_until_stopped
from nodepool.host.version import version_of
from nodepool.nats.log.gathering import Gatherer
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.log.verification import verify_log
from nodepool.nats.objects.following import present, until_closed
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.endpoints import Endpoint, NatsService
from nodepool.nats.wire.library import NatsError
from nodepool.nats.wire.waiting import until_first

RUNNING: Final = 512
"""How many messages are stored at the same time."""
ASKING: Final = 2_048
"""How many queries are answered at the same time; most of them wait for changes."""
ABOUT: Final = "The front door of the control plane: commands and observations in, queries out."


def main() -> None:
    """Run one replica until SIGTERM or SIGINT; settings come from the environment."""
    with ending_with_a_line(NAME):
        settings = read_gateway(os.environ)
        run_until_stopped(lambda stop: Gateway(settings).run(stop), settings.service)


class Gateway:
    """One replica.

    fault: why it cannot work, as one line; empty while it works.
    port: where it serves metrics and health; -1 if nowhere.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._telemetry = Telemetry(settings.service, self._samples)
        log, clock = self._telemetry.log, time.monotonic
        self._members = MembersFile(settings.members_file, clock, log)
        self._reader = ModelReader(ReadModel())
        self._door = Door(settings, self._members, self._reader.model, clock)
        self.past = Past(settings, log)
        self._desk = Desk(settings, self._members, self._reader, self._door, self.past, clock)
        intake = partial(Intake, telemetry=self._telemetry, orgs=self._members.orgs)
        self._intakes = (
            intake(_endpoint(COMMANDS, "cmd"), self._door.take, running=RUNNING),
            intake(_endpoint(OBSERVATIONS, "evt.agent"), self._door.take, running=RUNNING),
            intake(_endpoint(ASKED, "api"), self._desk.answer, running=ASKING),
        )
        endpoints = [each.endpoint for each in self._intakes]
        endpoints[0].data = lambda: self._door.storage.largest(clock())
        endpoints[2].data = self._desk.list_agents
        self._service = NatsService(NAME, uuid4().hex, _version(), ABOUT, endpoints)
        self._connection: Connection | None = None
        self._has_counted = False
        self.fault = "connecting to the bus"
        self.port = -1

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; a fault of the bus only delays the gateway."""
        telemetry = self._telemetry
        self.port = telemetry.serve(self.obstacle)
        telemetry.log.info("started", version=version_of(), **self._settings.list_settings())
        async with telemetry.at_work(stop):
            try:
                await until_first(stop.wait(), self._work())
            finally:
                await self.past.close()
            telemetry.log.info("stopping")

    def used_bytes(self) -> Mapping[str, int]:
        """Return how many bytes count against the budget of each organisation."""
        return self._door.storage.used(time.monotonic())

    def obstacle(self) -> str | None:
        """Return why the gateway is not ready, as one line; None if it is ready."""
        connection = self._connection
        if connection is not None and not connection.is_connected:
            return connection.fault
        return self.fault or self._members.fault or None

    async def _work(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._session()
            except FAULTS as error:
                self.fault = str(error) or type(error).__name__
                self._telemetry.count_restart(self.fault)
            failures = await pause(failures, time.monotonic() - began)

    async def _session(self) -> None:
        service = self._settings.service
        connection = await connect(
            service.url, NAME, patience_s=None, access=service.access, on_fault=self._note
        )
        self._connection = connection
        connection.on_reconnect.append(self._telemetry.count_reconnect)
        self._telemetry.log_connection(connection)
        try:
            await self._serve(connection)
        finally:
            self._connection = self._door.publisher = self._desk.outcomes = None
            self._desk.history.connection = None
            self._desk.is_ready = False
            connection.on_disconnect.clear()
            with suppress(NatsError, OSError):
                await connection.close()

    async def _serve(self, connection: Connection) -> None:
        self.fault = "no control plane has been set up on the bus"
        info = await present(connection, STREAM)
        self.fault = "reading the read model"
        self._members.current()
        kinds = (CapacityFound, CommandRefused)
        heard = Reader(
            connection,
            STREAM,
            [f"np.evt.capacity.*.*.*.{kind.__name__}" for kind in kinds],
            start=info.last + 1,
            verify=partial(verify_log, connection, info.log),
        )
        readers = await self._reader.open(connection, info.log)
        try:
            await heard.open()
            outcomes = PendingOutcomes(heard, CapacityFound)
            self._door.publisher, self._desk.outcomes = Gatherer(connection), outcomes
            self._desk.history.connection = connection
            await until_first(
                outcomes.listen(),
                self._reader.follow(readers, info.log),
                self._open(connection),
                *(intake.run() for intake in self._intakes),
            )
        finally:
            for reader in (heard, *(reader for _, reader in readers)):
                await reader.close()

    async def _open(self, connection: Connection) -> None:
        """Take messages once the model is current; return when the connection is closed."""
        await self._reader.prove_all()
        if not self._has_counted:
            await count_stored(connection, self._door.storage, time.monotonic)
            self._has_counted = True
        self._desk.is_ready = True
        for intake in self._intakes:
            await intake.open(connection)
        await self._service.serve(connection)
        await connection.flush()
        self.fault = ""
        self._telemetry.log.info("ready")
        await until_closed(connection)

    def _note(self, fault: str) -> None:
        if self._connection is None:
            self.fault = fault  # Once open, the connection reports its own faults.
        self._telemetry.log.warning("cannot connect", cause=fault)

    def _samples(self) -> Iterator[Sample]:
        """Yield the samples of a scrape, which runs in its own thread."""
        connection = self._connection
        yield Sample(contract.BUILD_INFO, (version_of(),), 1)
        yield Sample(contract.READY, (), self.obstacle() is None)
        yield Sample(contract.CONNECTED, (), connection is not None and connection.is_connected)
        for intake in self._intakes:
            yield Sample(WAITING, (intake.endpoint.name,), intake.waiting)
        yield Sample(BYTES_MAX, (), self._door.storage.per_hour)
        for org, used in self.used_bytes().items():
            if used:  # An organisation that is gone has stored nothing for an hour.
                yield Sample(BYTES, (org,), used)


def _endpoint(name: str, subject: str) -> Endpoint:
    return Endpoint(name, f"{DOOR}.{subject}.>", QUEUE)


def _version() -> str:
    """Return the version of the program as NATS services show it, which must have three numbers."""
    version = version_of()
    return version if version.count(".") == 2 else "0.0.0"
