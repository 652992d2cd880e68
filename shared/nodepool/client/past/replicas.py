"""Services as they were at a moment: from a snapshot before it, and the messages since."""

from contextlib import aclosing

from nodepool.client.errors import ClientError, translate_errors
from nodepool.client.past.errors import translate_archive_errors
from nodepool.client.past.history import History
from nodepool.engine.past import read_into
from nodepool.engine.replica import Replica
from nodepool.nats.objects.snapshots import restore
from nodepool.service import I, O, S, Service


async def replica_at(history: History, service: Service[S, I, O]) -> Replica[S, I, O]:
    """Return a replica that has read everything up to the moment; `engine.past` has its state.

    Raises ClientError if a snapshot is needed, and there is none that can be used.
    """
    replica = await _at_snapshot(history, service)
    first = replica.committed + 1
    if first < history.extent.first:
        raise ClientError(
            f"the log can be read from position {history.extent.first} on, and there is no snapshot"
            f" of {service.name} from there to position {history.position}; name a later moment"
        )
    async with aclosing(history.entries(first, service.filters(), service.wants)) as batches:
        async for entries in batches:
            read_into(replica, entries)
    return replica


async def _at_snapshot(history: History, service: Service[S, I, O]) -> Replica[S, I, O]:
    """Return a replica at the newest snapshot that can be used; at the log's start if none can."""
    log, records, live = history.extent.log, history.records, history.live
    replica = Replica(service, log=log)
    if live is not None:
        with translate_errors(live.url):
            newest = (await restore(live.connection, service, log)).replica
        if newest.expected_sequence <= history.position:
            return newest
    if records is None:
        return replica
    with translate_archive_errors():
        found = await records.newest_set(history.position, [service.name])
        if found is None:
            return replica
        snapshot = found.snapshots[service.name]
        try:
            folded = await records.load(service, snapshot)
        except ValueError:  # It is of another release; what it was made from says the same.
            return replica
    return Replica(service, folded, snapshot.committed, snapshot.expected_sequence, log=log)
