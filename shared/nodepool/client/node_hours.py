"""Node-hours from the archive and the rest of the log."""

from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from nodepool.archive.manifests import SnapshotSet
from nodepool.archive.storage.reading import Index
from nodepool.client.errors import ClientError
from nodepool.client.session import Session
from nodepool.client.whole_log import end_of, load_state, read_entries, snapshot_sets
from nodepool.contract.keys import NodeKey
from nodepool.usage.meter import Meter
from nodepool.usage.nodes import KINDS, CountedNode, event_of

if TYPE_CHECKING:
    from collections.abc import Mapping

AGGREGATOR: Final = "aggregator"
"""The service whose snapshots say how each Node was at a time."""


async def measure(
    index: Index | None, session: Session | None, since: datetime, until: datetime
) -> Meter:
    """Return what the time of Nodes was used for from a time up to another, or up to now.

    session: what is not archived yet is read there; None to end with the archive.
    Raises ClientError if there is nothing to begin with: no snapshot set before that time, and no
    log from its first message.
    """
    until = min(until, await end_of(index, session))
    if until <= since:
        raise ClientError(f"the log has nothing from {since} on yet; it ends at {until}")
    position, nodes = 0, dict[NodeKey, CountedNode]()
    if index is not None:
        position, nodes = await _find_start(index, since)
    meter = Meter(since, until, nodes)
    async for entries in read_entries(index, session, position + 1, until, KINDS):
        for entry in entries:
            event = event_of(entry)
            if event is not None and entry.time < until:
                meter.add(event, entry.time)
    return meter


async def _find_start(index: Index, since: datetime) -> tuple[int, dict[NodeKey, CountedNode]]:
    """Return the newest position before a time at which all Nodes are known, and the Nodes.

    A set that was made by another release, whose state has another shape, is of no use.
    """
    async for found in snapshot_sets(index):
        snapshot = found.snapshots.get(AGGREGATOR)
        if snapshot is None or not snapshot.time:
            continue
        if datetime.fromisoformat(snapshot.time) <= since:
            nodes = await _nodes_of(index, found)
            if nodes is not None:
                return snapshot.committed, nodes
    if index.first > 1:
        text = f"the archive begins at position {index.first}, without a snapshot set of this"
        raise ClientError(f"{text} release before {since}: begin later")
    return 0, {}


async def _nodes_of(index: Index, found: SnapshotSet) -> dict[NodeKey, CountedNode] | None:
    snapshot = found.snapshots[AGGREGATOR]
    service = import_module(f"{AGGREGATOR}.decide").SERVICE
    try:
        state = await load_state(index, snapshot, type(service.initial))
    except ValueError:
        return None
    counted = import_module(f"{AGGREGATOR}.counted").count_nodes(state)
    return dict(cast("Mapping[NodeKey, CountedNode]", counted))
