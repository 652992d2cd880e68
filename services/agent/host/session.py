"""Connects to the bus: watches the read model, sends commands, and exchanges reports and events."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import uuid4

from agent.actions import Place
from agent.host.commander import Commander
from agent.host.model import BusModel
from agent.host.registration import Registration
from agent.host.settings import AgentSettings
from agent.host.telemetry import NAME, Telemetry
from agent.pools.objects import Log
from agent.reading import Document
from nodepool.client.client import Client
from nodepool.client.errors import Unreachable
from nodepool.client.objects import document_of
from nodepool.client.sender import PendingOutcomes, Sender
from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.contract.messages import Event, wrap
from nodepool.contract.subjects import subject_of
from nodepool.host.edge import FAULTS, pause
from nodepool.host.version import version_of
from nodepool.nats.log import api
from nodepool.nats.log.consumers import AGENT, VERSION
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, StreamInfo, verify_log
from nodepool.nats.objects.following import LOOK_S, objects_reader, present, until_closed
from nodepool.nats.objects.stored_objects import stored_object
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import InDoubt
from nodepool.nats.wire.library import NatsError
from nodepool.nats.wire.waiting import until_first

CATCHING_UP: Final = 3
"""How many times to wait, for two seconds each, until the read model has caught up with the log.

The read model never catches up if a bucket was created again after the last Node left: the new
bucket has no deletion mark of that Node.
"""
OUTCOME_S: Final = 30.0
"""How long to wait for the outcome of a command before sending the command again."""
BUCKETS: Final = ("nodepools", "nodes")
Following = Callable[[Connection, Log, StreamInfo], Coroutine[None, None, None]]


class Bus:
    """The part of the bus that belongs to one cluster, in consecutive sessions.

    model: what the bus says.
    fault: why the model is not current, as one line; empty while it is current.
    commander: sends commands.
    log: what the log says.
    """

    def __init__(
        self,
        settings: AgentSettings,
        telemetry: Telemetry,
        model: BusModel,
        commander: Commander,
        *,
        registration: Registration,
        resync: Callable[[], None],
        following: Following,
    ) -> None:
        """Create a bus that is not connected yet.

        registration: what registers the cluster before anything else is done.
        resync: called after everything was read again.
        following: reads the events of the log.
        """
        self.model = model
        self.fault = "connecting to the bus"
        self._settings = settings
        self._telemetry = telemetry
        self.commander = commander
        self._registration = registration
        self._resync = resync
        self._following = following
        self.log = commander.log
        self._connection: Connection | None = None

    @property
    def obstacle(self) -> str:
        """Return why nothing can be compared now, as one line; empty if there is no obstacle."""
        connection = self._connection
        if connection is not None and not connection.is_connected:
            return connection.fault
        return self.fault

    async def publish(self, event: Event) -> None:
        """Store an event; raise an error of the bus if it is uncertain that the event is stored."""
        if self._connection is None:
            raise InDoubt("the bus is not connected")
        envelope = wrap(event, id=str(uuid4()), source=NAME)
        await api.publish_event(self._connection, subject_of(event, NAME), envelope.encode())

    async def run(self) -> None:
        """Read and send until the task is cancelled; a fault only delays the work."""
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._session()
            except FAULTS as error:
                self.fault = str(error) or type(error).__name__
                self._telemetry.count_restart(self.fault)
            finally:
                self.model.clear()
                await self.commander.end()
            failures = await pause(failures, asyncio.get_running_loop().time() - began)

    async def _session(self) -> None:
        service = self._settings.service
        connection = await connect(
            service.url, NAME, patience_s=None, access=service.access, on_fault=self._note
        )
        self._connection = connection
        connection.on_reconnect.append(self._note_reconnect)
        self._telemetry.log_connection(connection)
        try:
            await self._read(connection)
        finally:
            self._connection = None
            self.log.end()
            connection.on_disconnect.clear()
            with suppress(NatsError, OSError):
                await connection.close()

    def _note(self, fault: str) -> None:
        if self._connection is None:
            self.fault = fault  # Once open, the connection reports its own faults.
        self._telemetry.log.warning("cannot connect", cause=fault)

    def _note_registration(self, fault: str) -> None:
        self.fault = fault

    def _note_reconnect(self) -> None:
        self._telemetry.count_reconnect()
        if not self.fault:
            self._resync()

    async def _read(self, connection: Connection) -> None:
        place = self._settings.place
        self.fault = "no control plane has been set up on the bus"
        await present(connection, STREAM)
        # Read nothing before the registration: the data may be of another cluster of this name.
        await self._registration.run(self._note_registration)
        self.fault = "reading the read model"
        info = await present(connection, STREAM)
        buckets = [await present(connection, f"KV_{bucket}") for bucket in BUCKETS]
        log = Log(info.log, info.last, cluster=self._registration.uid)
        readers = [
            objects_reader(
                connection, bucket, f"$KV.{bucket}.{place.org}.{place.cluster}.>", log.id, found
            )
            for bucket, found in zip(BUCKETS, buckets, strict=True)
        ]
        heard = Reader(
            connection,
            STREAM,
            _outcomes_in(place),
            start=info.last + 1,
            verify=partial(verify_log, connection, log.id),
        )
        heard.metadata = {AGENT: f"{place.org}/{place.cluster}", VERSION: version_of()}
        try:
            await heard.open()
            outcomes = PendingOutcomes(heard, CommandAccepted)
            sender = Sender(connection, outcomes, source=NAME, timeout_s=OUTCOME_S)
            self.commander.begin(sender)
            self.log.begin(connection, log.id)
            self.model.log = log
            await until_first(
                outcomes.listen(),
                self._read_objects(readers),
                self._following(connection, log, info),
                until_closed(connection),
            )
        finally:
            for reader in (heard, *readers):
                await reader.close()

    async def _read_objects(self, readers: Sequence[Reader]) -> None:
        """Read the objects of the cluster until the task is cancelled."""
        for reader in readers:
            await reader.open()
        takes = (self.model.take_pool, self.model.take_node)
        for reader, take, bucket in zip(readers, takes, BUCKETS, strict=True):
            while reader.pending:
                self._take(bucket, await reader.next(LOOK_S), take)
        await self._catch_up()
        self.fault = ""
        self._telemetry.log.info(
            "read model read", nodepools=len(self.model.pools), nodes=len(self.model.nodes)
        )
        self._resync()
        await until_first(
            *(
                self._follow(bucket, reader, take)
                for reader, take, bucket in zip(readers, takes, BUCKETS, strict=True)
            )
        )

    async def _catch_up(self) -> None:
        """Wait until the read model shows all that the log has, as far as that can be seen.

        The wait is limited: an object that cannot be stored must not stop all comparisons.
        """
        service, place = self._settings.service, self._settings.place
        self.fault = "the read model is behind the log"
        client = Client(
            service.url, org=place.org, cluster=place.cluster, source=NAME, access=service.access
        )
        with suppress(Unreachable):
            async with client:
                for _ in range(CATCHING_UP):
                    end = await client.events.newest_position()
                    if await client.nodepools.catch_up() and await client.nodes.catch_up():
                        self.model.caught_up(end)
                        return
        self._telemetry.log.warning("read model behind", log=self.model.log and self.model.log.id)

    async def _follow(self, bucket: str, reader: Reader, take: "_Take") -> None:
        while True:
            self._take(bucket, await reader.next(), take)

    def _take(self, bucket: str, entries: Iterable[Entry], take: "_Take") -> None:
        place, log = self._settings.place, self.model.log
        prefix = len(f"$KV.{bucket}.{place.org}.{place.cluster}.")
        for entry in entries:
            name, document = entry.subject[prefix:], document_of(entry)
            written = stored_object(entry.headers, entry.position)
            if log is not None and written.log not in ("", log.id):
                document = None
            elif bucket == "nodes" and written.deleted and written.log:
                self.model.note_gone(name, written.version)
            try:
                take(name, document)
            except ValueError as error:
                self._telemetry.log.warning(
                    "unreadable", bucket=bucket, name=name, cause=str(error)
                )


_Take = Callable[[str, Document | None], None]


def _outcomes_in(place: Place) -> Sequence[str]:
    """Return the subject filters of the outcomes of all commands about a cluster."""
    path = ".".join(map(token, (place.org, place.cluster, "*")))
    return [f"np.evt.*.{path}.{kind.__name__}" for kind in (CommandAccepted, CommandRefused)]
