"""Connects to the bus: watches the read model, sends commands, and exchanges reports and events."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

from agent.host.commander import Commander
from agent.host.model import BusModel
from agent.host.registration import Registration
from agent.host.settings import AgentSettings
from agent.host.telemetry import NAME, Telemetry
from agent.pools.objects import Log
from agent.reading import Document
from nodepool.client.client import Client
from nodepool.client.errors import ClientError
from nodepool.client.mirror import FAULTS, LogState, Mirror, mirror_of
from nodepool.client.objects import Listed, Object
from nodepool.client.sender import PendingOutcomes
from nodepool.contract.buckets import Bucket
from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.messages import Event
from nodepool.host.edge import pause
from nodepool.host.version import version_of
from nodepool.nats.objects.following import until_closed
from nodepool.nats.wire.errors import InDoubt
from nodepool.nats.wire.waiting import until_first

if TYPE_CHECKING:
    from nodepool.nats.wire.connection import Connection

CATCHING_UP: Final = 3
"""How many times to wait, for two seconds each, until the read model has caught up with the log.

The read model never catches up if a bucket was created again after the last Node left: the new
bucket has no deletion mark of that Node.
"""
OUTCOME_S: Final = 30.0
"""How long to wait for the outcome of a command before sending the command again."""
BUCKETS: Final[tuple[Bucket, ...]] = ("nodepools", "nodes")
OUTCOMES: Final = (CommandAccepted.__name__, CommandRefused.__name__)
Following = Callable[[Mirror, Log, LogState], Coroutine[None, None, None]]


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
        self._mirror: Mirror | None = None
        self._lost = ""

    @property
    def obstacle(self) -> str:
        """Return why nothing can be compared now, as one line; empty if there is no obstacle."""
        connection = self._connection
        if connection is not None and not connection.is_connected:
            return connection.fault
        return self.fault or self._lost

    async def publish(self, event: Event) -> None:
        """Store an event; raise an error of the bus if it is uncertain that the event is stored."""
        if self._mirror is None:
            raise InDoubt("the bus is not connected")
        await self._mirror.publish(event)

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
        service, place = self._settings.service, self._settings.place
        client = Client(
            service.url,
            org=place.org,
            cluster=place.cluster,
            timeout_s=OUTCOME_S,
            source=NAME,
            access=service.access,
        )
        session = client.session
        try:
            await session.open(self._note)
            connection = self._connection = session.connection
            session.observe_gateway(self._note_lost, self._note_back)
            connection.on_reconnect.append(self._note_reconnect)
            self._telemetry.log_connection(connection, through=session.through)
            await until_first(self._read(client), until_closed(connection))
        finally:
            self._connection = self._mirror = None
            self._lost = ""
            self.log.end()
            await session.close()

    def _note(self, fault: str) -> None:
        if self._connection is None:
            self.fault = fault  # Once open, the connection reports its own faults.
        self._telemetry.log.warning("cannot connect", cause=fault)

    def _note_lost(self, what: str) -> None:
        self._lost = f"{what} does not respond"
        self._telemetry.log.warning("gateway lost", cause=self._lost)

    def _note_back(self, _what: str) -> None:
        self._lost = ""
        self._telemetry.log.info("gateway back")
        if not self.fault:
            self._resync()

    def _note_registration(self, fault: str) -> None:
        self.fault = fault

    def _note_reconnect(self) -> None:
        self._telemetry.count_reconnect()
        if not self.fault:
            self._resync()

    async def _read(self, client: Client) -> None:
        self.fault = "no control plane has been set up on the bus"
        mirror = mirror_of(client.session, version_of())
        await mirror.open()
        # Read nothing before the registration: the data may be of another cluster of this name.
        await self._registration.run(client, self._note_registration)
        self.fault = "reading the read model"
        state = await mirror.open()
        log = Log(state.id, state.end, cluster=self._registration.uid)
        async with mirror.follow(OUTCOMES, state.end) as heard:
            outcomes = PendingOutcomes(heard, CommandAccepted)
            self.commander.begin(client.session.backend.sender(outcomes))
            self.log.begin(mirror)
            self.model.log = log
            self._mirror = mirror
            await until_first(
                outcomes.listen(),
                self._read_objects(client, mirror),
                self._following(mirror, log, state),
            )

    async def _read_objects(self, client: Client, mirror: Mirror) -> None:
        """Read the objects of the cluster until the task is cancelled."""
        shown = await self._catch_up(client, mirror)
        self.fault = "reading the read model"
        unlisted = set(BUCKETS)
        takes = (self.model.take_pool, self.model.take_node)

        def note_listed(bucket: Bucket) -> None:
            unlisted.discard(bucket)
            if not unlisted:
                self._begin(shown)

        await until_first(
            *(
                self._follow(mirror, bucket, shown, take, note_listed)
                for bucket, take in zip(BUCKETS, takes, strict=True)
            )
        )

    def _begin(self, shown: int) -> None:
        """Compare everything, now that all objects are read; they show the log up to a position."""
        if shown:
            self.model.caught_up(shown)
        self.fault = ""
        self._telemetry.log.info(
            "read model read", nodepools=len(self.model.pools), nodes=len(self.model.nodes)
        )
        self._resync()

    async def _catch_up(self, client: Client, mirror: Mirror) -> int:
        """Wait until the read model shows all that the log has, as far as that can be seen.

        The wait is limited: an object that cannot be stored must not stop all comparisons. Returns
        up to which position of the log the objects that are read next are known to be complete; 0
        if that is not known.
        """
        self.fault = "the read model is behind the log"
        with suppress(ClientError):
            for _ in range(CATCHING_UP):
                end = (await mirror.find_state()).end
                if await client.nodepools.catch_up() and await client.nodes.catch_up():
                    return end
        self._telemetry.log.warning("read model behind", log=self.model.log and self.model.log.id)
        return 0

    async def _follow(
        self,
        mirror: Mirror,
        bucket: Bucket,
        shown: int,
        take: "_Take",
        listed: Callable[[Bucket], None],
    ) -> None:
        async with aclosing(mirror.objects(bucket, shown)) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    listed(bucket)
                else:
                    self._take(bucket, change, take)

    def _take(self, bucket: Bucket, change: Object, take: "_Take") -> None:
        if bucket == "nodes" and change.deleted_at:
            self.model.note_gone(change.key, change.deleted_at)
        try:
            take(change.key, change.document)
        except ValueError as error:
            self._telemetry.log.warning(
                "unreadable", bucket=bucket, name=change.key, cause=str(error)
            )


_Take = Callable[[str, Document | None], None]
