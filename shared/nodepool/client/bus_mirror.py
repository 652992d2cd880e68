"""The mirror of one who works with JetStream itself, as where the server has no accounts."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final
from uuid import uuid4

from nodepool.client.backend import Heard
from nodepool.client.mirror import PAGE, LogState
from nodepool.client.objects import Listed, Object, document_of
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.cluster_events import subjects_of_events
from nodepool.contract.door import OBSERVER
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Event, wrap
from nodepool.contract.subjects import subject_of
from nodepool.nats.log import api
from nodepool.nats.log.consumers import AGENT, VERSION
from nodepool.nats.log.pages import Page, newest_of, read_page
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.log.verification import verify_log
from nodepool.nats.objects.following import LOOK_S, objects_reader, present
from nodepool.nats.objects.stored_objects import stored_object

PAGE_BYTES: Final = 4 << 20
"""The most bytes of a page of events, but for the last event."""


class BusMirror:
    """Reads the log and the read model; the methods are those of `Mirror`."""

    def __init__(self, session: Session, release: str) -> None:
        self._session = session
        self._metadata = {AGENT: f"{session.org}/{session.cluster}", VERSION: release}
        self._log = LogId("")

    async def open(self) -> LogState:
        """Return the state of the log, as soon as there is a log."""
        state = await self.find_state()
        self._log = state.id
        return state

    async def find_state(self) -> LogState:
        """Return the state of the log now."""
        info = await present(self._session.connection, STREAM)
        return LogState(info.log, info.last, info.time)

    async def objects(
        self, bucket: Bucket, not_older_than: int
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield all objects of the cluster, `Listed`, and every change from then on."""
        session = self._session
        prefix = f"$KV.{bucket}.{session.org}.{session.cluster}."
        found = await present(session.connection, f"KV_{bucket}")
        reader = objects_reader(session.connection, bucket, f"{prefix}>", self._log, found)
        await reader.open()
        try:
            while reader.pending:
                for entry in await reader.next(LOOK_S):
                    yield self._object(entry, prefix)
            yield Listed()
            while True:
                for entry in await reader.next():
                    yield self._object(entry, prefix)
        finally:
            await reader.close()

    def _object(self, entry: Entry, prefix: str) -> Object:
        """Return what a write says; one that counts the positions of another log says nothing."""
        written = stored_object(entry.headers, entry.position)
        is_known = written.log in ("", self._log)
        deleted_at = written.version if written.deleted and written.log == self._log else 0
        document = document_of(entry) if is_known else None
        return Object(entry.subject[len(prefix) :], document, entry.position, deleted_at)

    async def read(
        self,
        names: Collection[str],
        *,
        pool: str = "",
        after: int = 0,
        since: datetime | None = None,
        limit: int = PAGE,
    ) -> Page:
        """Return events of these names about the cluster, or about a NodePool of the cluster."""
        subjects = subjects_of_events(names, self._session.org, self._session.cluster, pool)
        connection = self._session.connection
        return await read_page(
            connection, subjects, names, after=after, since=since, limit=limit, size=PAGE_BYTES
        )

    async def newest(self, names: Collection[str], pool: str) -> Page:
        """Return the newest event of each of these few names about a NodePool."""
        subjects = subjects_of_events(names, self._session.org, self._session.cluster, pool)
        return await newest_of(self._session.connection, subjects)

    @asynccontextmanager
    async def follow(self, names: Collection[str], after: int) -> AsyncIterator[Heard]:
        """Read all events of these names about the cluster that are stored after a position."""
        org, cluster = self._session.org, self._session.cluster
        filters = [each for name in names for each in subjects_of_events([name], org, cluster)]
        connection = self._session.connection
        verify = partial(verify_log, connection, self._log, is_whole=True)
        reader = Reader(connection, STREAM, filters, start=after + 1, verify=verify)
        reader.metadata = self._metadata
        await reader.open()
        try:
            yield reader
        finally:
            await reader.close()

    async def publish(self, event: Event) -> None:
        """Have an observation stored; an error says that it may or may not be stored."""
        envelope = wrap(event, id=str(uuid4()), source=OBSERVER)
        subject = subject_of(event, OBSERVER)
        await api.publish_event(self._session.connection, subject, envelope.encode())
