"""Waking a service that is due: with one `Wake`, even if several replicas notice that it is due."""

from datetime import datetime

from nodepool.engine.replica import Replica
from nodepool.engine.wakes import wake, wake_subject
from nodepool.nats.api import EXPECTED_SEQUENCE, last_message, publish_event
from nodepool.nats.connection import Connection
from nodepool.nats.errors import Conflict
from nodepool.nats.streams import STREAM
from nodepool.service import I, O, S


async def fire(connection: Connection, replica: Replica[S, I, O], due: datetime) -> int:
    """Store the `Wake` for what is due; return the position of the service's last `Wake`.

    That is another `Wake` if another replica was quicker, or if this replica began at a snapshot
    and did not know of it. If its position is before what the replica has read, call `fire` again.
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
