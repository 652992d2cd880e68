"""A user at work: the connections with the user's credentials, and the mirror behind the pages."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from console.host.happenings import follow_happenings
from console.host.history import History
from console.host.identities import Identity
from console.host.mirror import Mirror
from console.host.noting import noted
from console.host.operations import Operations
from console.host.pace import EXPLAINED_BURST, EXPLAINED_PER_S
from console.host.rendering import Parts
from console.host.roster import Roster
from console.view.model import Place
from console.view.standing import stand
from nodepool.client import Client, ClientError
from nodepool.client.asking import Asker, Reply
from nodepool.client.errors import Refused
from nodepool.contract.messages import Command
from nodepool.host.edge import FAULTS, pause
from nodepool.host.logs import Logger
from nodepool.host.settings import Settings
from nodepool.state.bucket import Bucket

if TYPE_CHECKING:
    from console.host.past import PastAccount

SOURCE: Final = "nodepool-console"
AGAIN_S: Final = 15.0
"""After how many seconds a NodePool that is not well is explained again: causes depend on time."""
LOOK_S: Final = 0.25
"""The least time between two looks for NodePools to explain, in seconds."""
RESTS: Final = 4.0
"""The pause after an explanation, as a multiple of its duration: with a thousand NodePools of one
type, an explanation takes a third of a second, in which the gateway does nothing else."""
PAST_S: Final = 60.0
"""After how many seconds the gateway is asked again whether it shows the past."""
TO_COME: Final = timedelta(days=1)
SHOWN_MAX: Final = 400
"""The most NodePools that are explained repeatedly: the NodePools that pages showed last."""
CONNECTIONS_MAX: Final = 16
"""The most connections for commands that stay open: one for each cluster and person."""


class Kept(NamedTuple):
    """A moment of the past, as an address names it, and the connection that it is read through."""

    client: Client
    at: str
    account: "PastAccount"


class Account:
    """A user at work.

    looking, past: held while a moment of the past is read, and the moment that was read last.
    used: when a page was last asked for, by a clock that never jumps.
    is_closed: whether it has ended, so that open pages have to connect again.
    """

    def __init__(self, identity: Identity, settings: Settings, log: Logger) -> None:
        self.identity = identity
        self.mirror = Mirror(identity.org)
        self.parts = Parts()
        self._shown: dict[Place, None] = {}
        self.used = time.monotonic()
        self.is_closed = self._has_past = False
        self.settings, self.log = settings, log
        self.looking = asyncio.Lock()
        self.past: Kept | None = None
        self._reader: Client | None = None
        self._clients: dict[tuple[str, str], Client] = {}
        self._opening = asyncio.Lock()
        self.history = History(self.mirror, self.ask)
        self.operations = Operations(self.mirror)
        self.roster = Roster(self.ask)

    async def run(self) -> None:
        """Keep the mirror current until cancelled; a fault only delays it."""
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._session()
            except* (ClientError, *FAULTS) as errors:
                first = _first(errors)
                self.mirror.note_fault(str(first) or type(first).__name__)
                self.log.warning("mirror restarts", user=self.identity.name, cause=str(first))
            failures = await pause(failures, time.monotonic() - began)

    async def _session(self) -> None:
        async with AsyncExitStack() as stack:
            client = self._make_client()
            stack.push_async_callback(self._close)
            await client.session.open(on_fault=self.mirror.note_fault)
            # Not before: pages that are shown meanwhile would ask on no connection.
            self._reader = client
            lost, back = self._note_lost, self._note_back
            client.session.observe(lost, back)
            if not self.identity.org:
                access = self.identity.access(self.settings.access.ca_file)
                await self.operations.follow(client, self.settings.url, access, lambda: self.used)
                return
            await self._ask_for_past()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_past())
                group.create_task(self.mirror.follow(client))
                group.create_task(follow_happenings(client, self.mirror))
                group.create_task(self._explain())

    async def close(self) -> None:
        """Close all connections, and have open pages connect again."""
        self.is_closed = True
        self.mirror.note_change()
        await self._close()

    async def _close(self) -> None:
        clients = [self._reader, *self._clients.values()]
        self._reader = None
        self._clients.clear()
        for client in clients:
            if client is not None:
                with suppress(ClientError, *FAULTS):
                    await client.session.close()

    def client(self) -> Client:
        """Return the client that reads; raise ClientError if it is not connected."""
        if self._reader is None:
            raise Refused("", "Unavailable", f"the console is not connected: {self.mirror.fault}")
        return self._reader

    def _make_client(self, cluster: str = "demo", person: str = "") -> Client:
        org = self.identity.org
        return Client(
            self.settings.url,
            org=org or "demo",
            cluster=cluster,
            source=f"{SOURCE}/{person}" if person else SOURCE,
            access=self.identity.access(self.settings.access.ca_file),
            through="gateway" if org else "bus",
        )

    def _note_lost(self, what: str) -> None:
        self.mirror.note_fault(f"{what} does not answer")

    def _note_back(self, what: str) -> None:
        self.mirror.note_fault("")

    # Asking and sending.

    @property
    @noted
    def has_past(self) -> bool:
        """Return whether the gateway shows moments of the past, as far as is known."""
        return self._has_past

    async def ask(self, query: str, fields: Mapping[str, object]) -> Reply:
        """Return the answer of the gateway to a query; raise ClientError without one."""
        return await Asker(self.client().session).ask(query, fields)

    async def _follow_past(self) -> None:
        """Ask again and again whether there is a past: the operator may give the gateway one."""
        while True:
            await asyncio.sleep(PAST_S)
            await self._ask_for_past()

    async def _ask_for_past(self) -> None:
        """Note whether the gateway shows the past; without an answer, what was known counts."""
        # A gateway with an archive refuses a moment to come as such, without looking at the past.
        to_come = (datetime.now(UTC) + TO_COME).isoformat()
        try:
            await self.ask("Moment", {"at": to_come})
        except Refused as refusal:
            if refusal.reason in ("Invalid", "Forbidden"):
                self._has_past = refusal.reason == "Invalid"
        except ClientError:
            return

    async def send(self, command: Command, person: str = "") -> None:
        """Send a command as the user; raise ClientError if it is refused.

        A moment later the mirror shows what it has changed.

        person: who has signed in as the user, which the audit has as part of the program.
        """
        revision = self.mirror.revision
        client = await self._client_of(command.path[1], person)
        await client.commands.send(command)
        await self.mirror.wait_for_change(revision, SHOWN_S)

    async def _client_of(self, cluster: str, person: str) -> Client:
        """Return a client for the commands of a person about a cluster, which stays open."""
        key = cluster, person
        async with self._opening:
            client = self._clients.get(key)
            if client is None:
                if len(self._clients) >= CONNECTIONS_MAX:
                    oldest = self._clients.pop(next(iter(self._clients)))
                    await oldest.session.close()
                client = self._make_client(cluster, person)
                await client.session.open()
                self._clients[key] = client
            return client

    # Explaining.

    async def explain(self, place: Place) -> None:
        """Ask why a NodePool lacks Nodes, and store the explanation in the mirror."""
        asked = {"cluster": place.cluster, "pool": place.name}
        try:
            reply = await self.ask("Explain", asked)
        except Refused:
            self.mirror.explain(place, None)
            return
        self.mirror.explain(place, {name: reply[name] for name in reply if name != "position"})

    def note_shown(self, places: Iterable[Place]) -> None:
        """Note that a page shows NodePools, so that their explanations are kept current."""
        for place in places:
            self._shown.pop(place, None)
            self._shown[place] = None
        while len(self._shown) > SHOWN_MAX:
            del self._shown[next(iter(self._shown))]

    async def _explain(self) -> None:
        """Explain the NodePools that pages show, if they are not well."""
        mirror, again = self.mirror, time.monotonic()
        pace = Bucket(EXPLAINED_PER_S, EXPLAINED_BURST, again)
        while True:
            while (place := self._find_unexplained()) is not None:
                await asyncio.sleep(pace.owe(time.monotonic()))
                began = time.monotonic()
                await self.explain(place)
                await asyncio.sleep(RESTS * (time.monotonic() - began))
            await mirror.wait_for_change(mirror.revision, AGAIN_S)
            await asyncio.sleep(LOOK_S)  # One look for all changes of a moment.
            if time.monotonic() - again >= AGAIN_S:
                again = time.monotonic()
                known = [place for place in self._shown if place in mirror.explanations]
                mirror.unexplained.update(dict.fromkeys(known))

    def _find_unexplained(self) -> Place | None:
        """Return a NodePool that has to be explained; first a NodePool without an explanation."""
        mirror = self.mirror
        found = [place for place in self._shown if place in mirror.unexplained]
        for place in sorted(found, key=lambda place: place in mirror.explanations):
            del mirror.unexplained[place]
            pool = mirror.pool(place)
            if pool is not None and (not stand(pool).is_quiet or place in mirror.explanations):
                return place
        return None


SHOWN_S: Final = 0.5
"""How long a page waits until the mirror shows a command, in seconds."""


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
