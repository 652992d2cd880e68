"""The session of a client that sees the past: it opens the archive, and the bus only if it must."""

from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from nodepool.archive.storage.records import Records
from nodepool.archive.storage.store import Store
from nodepool.client.errors import Unreachable, translate_archive_errors
from nodepool.client.past.backend import PastBackend
from nodepool.client.past.errors import NoMoment, refuse
from nodepool.client.past.history import History, is_archived
from nodepool.client.past.objects import PastObjects
from nodepool.client.past.replicas import replica_at
from nodepool.client.session import Session
from nodepool.contract.moments import rfc3339
from nodepool.engine.past import state_of

if TYPE_CHECKING:
    from nodepool.nats.wire.connection import FaultListener

Moment = int | datetime
"""A position of the log, or a time."""
PROJECTED = "aggregator"
"""The service whose state the read model shows."""


class PastSession(Session):
    """A session with the control plane as it was at a moment.

    live: a session with the bus, which is opened only if the archive does not hold the moment.
    at: the moment.
    archive: the URL of the archive; empty for none.
    history: the messages up to the moment, once it is open.
    """

    def __init__(self, live: Session, at: Moment, archive: str) -> None:
        self._live, self._at, self._archive = live, at, archive
        super().__init__(
            live.url,
            org=live.org,
            cluster=live.cluster,
            timeout_s=live.timeout_s,
            source=live.source,
            access=live.access,
            through=live.through,
        )
        self.history: History | None = None
        self._store: Store | None = None
        self._past = PastBackend(live.org, live.cluster)
        self.__dict__["backend"] = self._past

    async def open(self, on_fault: "FaultListener | None" = None) -> None:
        """Open the archive, and the bus if it is needed; raise ClientError for other moments."""
        try:
            history = await self._open_history()
        except BaseException:
            await self.close()
            raise
        self.moment, self.history = history.time, history
        self._past.show(history, partial(_read_objects, history))

    async def close(self) -> None:
        """Close the bus and the store, if they are open."""
        await self._live.close()
        if self._store is not None:
            await self._store.close()

    def require_bus(self, what: str) -> None:
        """Raise `Refused`: the bus has only what is so now."""
        raise refuse(what)

    @property
    def trimmed_at(self) -> int:
        """Return where the log on the bus begins, if more than it has was asked of it."""
        return self._live.trimmed_at

    @trimmed_at.setter
    def trimmed_at(self, first: int) -> None:
        """Note it where it is read."""
        self._live.trimmed_at = first

    @property
    def messages_received(self) -> int:
        """Return how many messages the server has sent."""
        return self._live.messages_received

    async def _open_history(self) -> History:
        records = await self._open_archive()
        live = None
        if records is None or not is_archived(records, self._at):
            live = self._live
            await self._open_bus(records)
        history = await History.open(records, live)
        extent = history.extent
        if isinstance(self._at, int):
            if not extent.first <= self._at <= extent.last:
                raise NoMoment(f"there is no position {self._at}: {await _covers(history)}")
            history.position = self._at
            history.time = await history.time_of(self._at)
        else:
            history.position = await history.position_before(self._at)
            history.time = self._at
            if history.position < extent.first:
                history.position = extent.last
                text = f"nothing is known of {self._at.isoformat()}: {await _covers(history)}"
                raise NoMoment(text)
        return history

    async def _open_archive(self) -> Records | None:
        if not self._archive:
            return None
        with translate_archive_errors():
            self._store = Store(self._archive)
            return await Records.open(self._store)

    async def _open_bus(self, records: Records | None) -> None:
        self._live.require_bus("look at the past without an archive that holds it")
        try:
            await self._live.open()
        except Unreachable as error:
            if records is None or records.end is None:
                raise
            end = f"position {records.last}, of {records.end.ended}"
            raise Unreachable(f"the archive ends at {end}, and {error}") from None


async def _read_objects(history: History) -> PastObjects:
    """Return the read model of a moment; raise ClientError if that cannot be known."""
    service = import_module(f"{PROJECTED}.decide").SERVICE
    state = state_of(await replica_at(history, service))
    return PastObjects(service.projection, state, history.extent.log, history.position)


async def _covers(history: History) -> str:
    """Return what of the log can be read, in words."""
    first, last = history.extent.first, history.extent.last
    if last < first:
        return "there is no message yet"
    began, ended = [await history.time_of(position) for position in (first, last)]
    from_, to = f"{first} ({rfc3339(began)})", f"{last} ({rfc3339(ended)})"
    return f"the log can be read from position {from_} to {to}"
