"""The NodePools as stored in the log: their desired state, without the read model's delay."""

import asyncio

from nodepool.client.accepted import DELETED, VALIDATED
from nodepool.client.errors import NotFound, translated
from nodepool.client.names import checked
from nodepool.client.read_model import Document
from nodepool.client.session import Session
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.decode import decode
from nodepool.contract.events import NodePoolValidated
from nodepool.contract.keys import token
from nodepool.contract.messages import Envelope
from nodepool.contract.model import API_VERSION, FINALIZER, KIND, spec_document
from nodepool.contract.moments import rfc3339
from nodepool.nats import api
from nodepool.nats.streams import STREAM


class StoredPools(Session):
    """The part of a client that reads the NodePools that are stored in the log.

    A NodePool's desired state is in the log as soon as the outcome of its command is in the log.
    """

    async def find_stored(self, pool: str) -> NodePoolValidated | None:
        """Return the newest spec of a NodePool, with its verdict; None if there is no NodePool."""
        name = token(checked("name", pool))
        stored, deleted = await asyncio.gather(
            self._last_event(VALIDATED, name), self._last_event(DELETED, name)
        )
        if stored is None or (deleted is not None and deleted.position > stored.position):
            return None
        envelope = decode(NodePoolValidated, stored.subject, stored.content, {}, stored.position)
        return envelope.data if isinstance(envelope, Envelope) else None

    async def was_stored(self, pool: str) -> bool:
        """Return whether there is, or ever was, a NodePool of this name."""
        return await self._last_event(VALIDATED, token(checked("name", pool))) is not None

    async def has_stored(self) -> bool:
        """Return whether the cluster has, or ever had, a NodePool."""
        service, name = VALIDATED
        subject = f"np.evt.{service}.{self.org}.{self.cluster}.*.{name}"
        with translated(self.url):
            return await api.leaders_message(self._connection, STREAM, subject) is not None

    async def stored(self, pool: str) -> NodePoolValidated:
        """Return the same as `find_stored`; raise `NotFound` if there is no such NodePool."""
        event = await self.find_stored(pool)
        if event is None:
            raise NotFound(f'nodepool "{pool}" not found in {self.org}/{self.cluster}')
        return event


def stored_document(stored: NodePoolValidated) -> Document:
    """Return the NodePool as it was stored, without its status.

    If a user applies the document again, it is refused if the NodePool has changed since.
    """
    metadata: dict[str, object] = {
        "name": stored.pool,
        "uid": stored.uid,
        "generation": stored.generation,
        "resourceVersion": str(stored.version),
        "creationTimestamp": rfc3339(stored.created),
        "finalizers": [FINALIZER],
    }
    return _document(metadata, stored)


def desired_document(command: ApplyNodePool) -> Document:
    """Return the NodePool as a command wants it, without the fields that the control plane sets."""
    return _document({"name": command.metadata.name}, command)


def _document(metadata: dict[str, object], source: NodePoolValidated | ApplyNodePool) -> Document:
    given = source if isinstance(source, NodePoolValidated) else source.metadata
    for field, values in (("labels", given.labels), ("annotations", given.annotations)):
        if values:
            metadata[field] = dict(values)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec_document(source.spec),
    }
