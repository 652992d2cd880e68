"""Waking a service that is due: one `Wake`, however many replicas of it see that."""

from datetime import datetime

from nodepool.engine.replica import Replica
from nodepool.engine.wakes import wake, wake_subject
from nodepool.nats.api import EXPECTED_SEQUENCE, last_message, publish_event
from nodepool.nats.connection import Connection
from nodepool.nats.errors import Conflict
from nodepool.nats.streams import STREAM
from nodepool.service import I, O, S


async def fire(connection: Connection, replica: Replica[S, I, O], due: datetime) -> int:
    """Stores the `Wake` for what is due; the position of the service's last one.

    That is another one where another replica was quicker, or where this one began at a snapshot and
    did not know it; then it lies before what the replica has read, and this is to be called again.
    Raises InDoubt, ServerRefusal or an error of the client.
    """
    name = replica.service.name
    content, subject = wake(name, due, replica.read_to).encode(), wake_subject(name)
    condition = {EXPECTED_SEQUENCE: str(replica.last_wake)}
    try:
        return await publish_event(connection, subject, content, condition)
    except Conflict:
        last = await last_message(connection, STREAM, subject)
        replica.last_wake = last.position if last is not None else 0
        return replica.last_wake
