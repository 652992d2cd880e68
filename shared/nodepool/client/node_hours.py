"""Node-hours from the archive and the rest of the log."""

from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from importlib import import_module
from typing import Final, cast

from nodepool.client.errors import ClientError
from nodepool.client.past.history import History
from nodepool.client.past.replicas import replica_before
from nodepool.contract.keys import NodeKey
from nodepool.contract.subjects import filters_of
from nodepool.usage.meter import Meter
from nodepool.usage.nodes import KINDS, CountedNode, event_of

AGGREGATOR: Final = "aggregator"
"""The service whose snapshots say how each Node was at a time."""
FILTERS: Final = [each for kind in KINDS.values() for each in filters_of(kind)]
PUT_BACK: Final = timedelta(minutes=1)
"""How far the clock of the log may go back, as where another server becomes its leader."""


async def measure(history: History, since: datetime, until: datetime) -> Meter:
    """Return what the time of Nodes was used for from a time up to another, or up to now.

    history: is read up to there; without a bus, `now` is the end of the archive.
    Raises ClientError if there is nothing to begin with: no snapshot before that time, and no log
    from its first message.
    """
    until = min(until, history.time)
    if until <= since:
        raise ClientError(f"the log has nothing from {since} on yet; it ends at {until}")
    first, nodes = await _find_start(history, since)
    history.position = await history.position_before(until + PUT_BACK)
    meter = Meter(since, until, nodes)
    async with aclosing(history.entries(first, FILTERS, _is_counted)) as batches:
        async for entries in batches:
            for entry in entries:
                event = event_of(entry)
                if event is not None and entry.time < until:
                    meter.add(event, entry.time)
    return meter


def _is_counted(subject: str) -> bool:
    """Return whether a subject has the name of an event that counts; `event_of` is exact."""
    return subject.rpartition(".")[2] in KINDS


async def _find_start(
    history: History, since: datetime
) -> tuple[int, Mapping[NodeKey, CountedNode]]:
    """Return from which position on to count, and how all Nodes were before that."""
    service = import_module(f"{AGGREGATOR}.decide").SERVICE
    replica = await replica_before(history, service, await history.position_before(since))
    counted = import_module(f"{AGGREGATOR}.counted").count_nodes(replica.safe.state)
    return replica.committed + 1, cast("Mapping[NodeKey, CountedNode]", counted)
