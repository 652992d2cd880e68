"""A user at work: the connections with the user's credentials, and the mirror behind the pages."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Final

from console.host.happenings import follow_happenings
from console.host.history import History
from console.host.identities import Identity
from console.host.mirror import Mirror
from console.view.model import Place
from console.view.standing import stand
from nodepool.client import Client, ClientError
from nodepool.client.asking import Asker, Reply
from nodepool.client.errors import Refused
from nodepool.contract.messages import Command
from nodepool.host.edge import FAULTS, pause
from nodepool.host.logs import Logger
from nodepool.host.settings import Settings

SOURCE: Final = "nodepool-console"
ASKED_S: Final = 0.05
"""The least time between two explanations, in seconds: the budget of queries is the organisation's,
and others ask too."""
AGAIN_S: Final = 15.0
"""After how many seconds a NodePool that is not well is explained again: time itself is a cause."""
EXPLAINED_MAX: Final = 200
"""The most NodePools that are explained again and again."""
CONNECTIONS_MAX: Final = 16
"""The most clusters whose connections for commands stay open."""


class Account:
    """A user at work.

    used: when a page was last asked for, by a clock that never jumps.
    is_closed: whether it has ended, so that open pages have to connect again.
    """

    def __init__(self, identity: Identity, settings: Settings, log: Logger) -> None:
        self.identity = identity
        self.mirror = Mirror(identity.org)
        self.used = time.monotonic()
        self.is_closed = False
        self._settings, self._log = settings, log
        self._reader: Client | None = None
        self._clients: dict[str, Client] = {}
        self._opening = asyncio.Lock()
        self.history = History(self.mirror, self.ask)

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
                self._log.warning("mirror restarts", user=self.identity.name, cause=str(first))
            failures = await pause(failures, time.monotonic() - began)

    async def _session(self) -> None:
        async with AsyncExitStack() as stack:
            client = self._make_client()
            stack.push_async_callback(self._close)
            self._reader = client
            await client.session.open(on_fault=self.mirror.note_fault)
            lost, back = self._note_lost, self._note_back
            client.session.observe(lost, back)
            async with asyncio.TaskGroup() as group:
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

    def _make_client(self, cluster: str = "demo") -> Client:
        return Client(
            self._settings.url,
            org=self.identity.org,
            cluster=cluster,
            source=SOURCE,
            access=self.identity.access(self._settings.access.ca_file),
            through="gateway",
        )

    def _note_lost(self, what: str) -> None:
        self.mirror.note_fault(f"{what} does not answer")

    def _note_back(self, what: str) -> None:
        self.mirror.note_fault("")

    # Asking and sending.

    async def ask(self, query: str, fields: Mapping[str, object]) -> Reply:
        """Return the answer of the gateway to a query; raise ClientError without one."""
        if self._reader is None:
            raise Refused("", "Unavailable", f"the console is not connected: {self.mirror.fault}")
        return await Asker(self._reader.session).ask(query, fields)

    async def send(self, command: Command) -> None:
        """Send a command as the user; raise ClientError if it is refused.

        A moment later the mirror shows what it has changed.
        """
        revision = self.mirror.revision
        client = await self._client_of(command.path[1])
        await client.commands.send(command)
        await self.mirror.wait_for_change(revision, SHOWN_S)

    async def _client_of(self, cluster: str) -> Client:
        """Return a client for commands about a cluster, which stays open."""
        async with self._opening:
            client = self._clients.get(cluster)
            if client is None:
                if len(self._clients) >= CONNECTIONS_MAX:
                    oldest = self._clients.pop(next(iter(self._clients)))
                    await oldest.session.close()
                client = self._make_client(cluster)
                await client.session.open()
                self._clients[cluster] = client
            return client

    # Explaining.

    async def explain(self, place: Place) -> None:
        """Have the mirror know why a NodePool lacks Nodes."""
        asked = {"cluster": place.cluster, "pool": place.name}
        try:
            reply = await self.ask("Explain", asked)
        except Refused:
            self.mirror.explain(place, None)
            return
        self.mirror.explain(place, {name: reply[name] for name in reply if name != "position"})

    async def _explain(self) -> None:
        """Explain the NodePools that are not well, and those that somebody has looked at."""
        mirror, again = self.mirror, time.monotonic()
        while True:
            while mirror.unexplained:
                place = next(iter(mirror.unexplained))
                del mirror.unexplained[place]
                pool = mirror.pool(place)
                if pool is None or (stand(pool).is_quiet and place not in mirror.explanations):
                    continue
                await self.explain(place)
                await asyncio.sleep(ASKED_S)
            await mirror.wait_for_change(mirror.revision, AGAIN_S)
            if time.monotonic() - again >= AGAIN_S:
                again = time.monotonic()
                known = list(mirror.explanations)[:EXPLAINED_MAX]
                mirror.unexplained.update(dict.fromkeys(known))


SHOWN_S: Final = 0.5
"""How long a page waits until the mirror shows a command, in seconds."""


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
