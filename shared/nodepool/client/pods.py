"""Following one Pod of a NodePool, and what happens to its Node, in the log."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import NamedTuple

from nodepool.client.names import checked
from nodepool.client.session import Session
from nodepool.contract.decode import decode
from nodepool.contract.events import PodChanged, PreemptionPending
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope
from nodepool.nats.streams import STREAM

CHANGED = f".{PodChanged.__name__}"
"""The end of the subject of a Pod's change; all other events on the reader are preemptions."""


class PodEvent(NamedTuple):
    """An event about a Pod, or about a Node of its NodePool.

    time: when the event was stored in the log.
    """

    event: PodChanged | PreemptionPending
    time: datetime


async def pod_events(
    session: Session, pool: str, name: str, *, after: int
) -> AsyncGenerator[PodEvent, None]:
    """Yield changes of a Pod, and preemptions of Nodes of its NodePool, without end.

    Events that are stored while the server cannot be reached follow once it can be reached.

    after: only the events that lie in the log after this position.
    """
    path = f"{session.org}.{session.cluster}.{token(checked('name', pool))}"
    kinds = (PodChanged, PreemptionPending)
    filters = [f"np.evt.{kind.speaker}.{path}.{kind.__name__}" for kind in kinds]
    async with session.reader(STREAM, filters, start=after + 1) as reader:
        while True:
            for entry in await reader.next():
                event = _event(entry)
                if isinstance(event, PodChanged) and event.name != name:
                    continue
                if event is not None:
                    yield PodEvent(event, entry.time)


def _event(entry: Entry) -> PodChanged | PreemptionPending | None:
    kind: type[PodChanged] | type[PreemptionPending]
    kind = PodChanged if entry.subject.endswith(CHANGED) else PreemptionPending
    envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
    return envelope.data if isinstance(envelope, Envelope) else None
