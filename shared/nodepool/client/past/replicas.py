"""Services as they were at a moment: from a snapshot before it, and the messages since."""

from contextlib import aclosing

from nodepool.client.errors import translate_archive_errors, translate_errors
from nodepool.client.past.errors import NoMoment
from nodepool.client.past.history import History
from nodepool.client.session import Session
from nodepool.contract.log import LogId
from nodepool.engine.past import read_into
from nodepool.engine.replica import Replica
from nodepool.nats.objects.snapshots import restore, stored_manifest
from nodepool.service import I, O, S, Service


async def replica_at(history: History, service: Service[S, I, O]) -> Replica[S, I, O]:
    """Return a replica that has read everything up to the moment; `engine.past` has its state.

    Raises NoMoment if a snapshot is needed, and there is none that can be used.
    """
    replica = await replica_before(history, service, history.position)
    first = replica.committed + 1
    async with aclosing(history.entries(first, service.filters(), service.wants)) as batches:
        async for entries in batches:
            read_into(replica, entries)
    return replica


async def replica_before(
    history: History, service: Service[S, I, O], position: int
) -> Replica[S, I, O]:
    """Return a replica at the newest snapshot up to a position that can be used.

    It is at the log's start if none can; NoMoment is raised if the log does not have that.
    """
    log = history.extent.log
    live = history.live if history.uses_snapshots else None
    replica = await _on_the_bus(live, service, log, position)
    replica = replica or await _in_the_archive(history, service, position)
    replica = replica or Replica(service, log=log)
    if replica.committed + 1 < history.extent.first:
        raise NoMoment(
            f"the log can be read from position {history.extent.first} on, and there is no snapshot"
            f" of {service.name} from there to position {position}; name a later moment"
        )
    return replica


async def _on_the_bus(
    live: Session | None, service: Service[S, I, O], log: LogId, position: int
) -> Replica[S, I, O] | None:
    if live is None:
        return None
    with translate_errors(live.url):
        try:
            manifest = await stored_manifest(live.connection, service.name)
        except ValueError:
            return None
        if manifest is None or manifest.expected_sequence > position:
            return None
        newest = (await restore(live.connection, service, log)).replica
    # A snapshot that cannot be used gives a replica at the log's start, and a newer one may come.
    return newest if 0 < newest.expected_sequence <= position else None


async def _in_the_archive(
    history: History, service: Service[S, I, O], position: int
) -> Replica[S, I, O] | None:
    records = history.records
    if records is None:
        return None
    with translate_archive_errors():
        found = await records.newest_set(position, [service.name])
        if found is None:
            return None
        snapshot = found.snapshots[service.name]
        try:
            folded = await records.load(service, snapshot)
        except ValueError:  # It is of another release; what it was made from says the same.
            return None
    committed, expected = snapshot.committed, snapshot.expected_sequence
    return Replica(service, folded, committed, expected, log=history.extent.log)
