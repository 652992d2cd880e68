"""Opening a session: provision the bus, restore a replica from its snapshot, read on the log."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from nodepool.contract.log import LogId
from nodepool.engine.replica import Replica
from nodepool.host.host import Host, Start
from nodepool.host.log_state import check_beginning
from nodepool.host.session import ReplicaSession
from nodepool.host.settings import Settings
from nodepool.host.snapshots import REPLAY_S
from nodepool.host.version import version_of
from nodepool.nats.log.api import check_limits, last_position, leaders_message
from nodepool.nats.log.consumers import REPLICA, SERVICE, VERSION
from nodepool.nats.log.feed import Feed, Member
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.log.verification import verify_log
from nodepool.nats.objects.snapshots import Restored, restore
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import Denied
from nodepool.nats.wire.library import NatsError
from nodepool.service import I, O, S, commit_subject

PROVISIONED_S = 0.5
"""How often a service whose user may not make streams looks whether they are there."""
UNPROVISIONED = "streams are missing or have old settings; waiting until the provisioner makes them"


@asynccontextmanager
async def open_session(
    host: Host[S, I, O], connection: Connection, on_wait: Callable[[str], None]
) -> AsyncIterator[ReplicaSession[S, I, O]]:
    """Provide a session on a provisioned bus, restored from the newest snapshot, and reading.

    on_wait: called with the reason if another program has to provision the bus first.
    """
    service = host.service
    check_limits(connection)
    log = await _await_streams(connection, host.settings.replicas, on_wait)
    publisher = Publisher(connection)
    await publisher.open()
    host.snapshots.newest.saved = None
    replica = await _restore(host, connection, log)
    last_commit = await leaders_message(connection, STREAM, commit_subject(service.name))
    reader = _make_reader(host, connection, log, replica.committed + 1)
    try:
        await reader.open()
        committed = last_commit.position if last_commit is not None else 0
        start = Start(log, committed, await last_position(connection, STREAM))
        yield ReplicaSession(host, connection, publisher, reader, replica, start)
    finally:
        host.snapshots.abandon()
        await reader.close()


async def _restore(host: Host[S, I, O], connection: Connection, log: LogId) -> Replica[S, I, O]:
    """Return a replica at the newest usable snapshot; raise HeadMissing if it cannot read on."""
    service, snapshots = host.service, host.snapshots
    if snapshots.ignored:
        restored = Restored(Replica(service, log=log), "NODEPOOL_SNAPSHOTS is ignore")
    else:
        restored = await restore(connection, service, log, snapshots.newest, version_of())
    replica, unused, notes = restored
    if unused:
        host.telemetry.log.warning("snapshot not used", cause=unused)
    snapshots.note_stored_position(replica.committed, is_usable=not unused)
    if notes is not None:
        host.telemetry.log.info("snapshot converted", changes=notes)
        snapshots.note_work(REPLAY_S)  # So one of this shape is saved after the next commit.
    await check_beginning(connection, service.name, replica.committed, unused)
    return replica


def _make_reader(host: Host[S, I, O], connection: Connection, log: LogId, start: int) -> Reader:
    """Return a reader of the log from a position on, which joins the feed of its process if any."""
    service, feed = host.service, host.feed
    filters, wants = service.filters(), service.wants
    verify = partial(verify_log, connection, log, is_whole=True)
    metadata = {SERVICE: service.name, VERSION: version_of(), REPLICA: host.doubts.mark}
    if feed is None:
        reader = Reader(connection, STREAM, filters, start=start, wants=wants, verify=verify)
    else:
        reader = Member(feed, log, connection, filters, start=start, wants=wants, verify=verify)
    reader.metadata = metadata
    return reader


async def _await_streams(
    connection: Connection, replicas: int, on_wait: Callable[[str], None]
) -> LogId:
    """Provision the bus, or wait until another user has done so; return the log's identity."""
    is_waiting = False
    while True:
        try:
            return await provision(connection, replicas)
        except Denied:
            if not is_waiting:
                on_wait(UNPROVISIONED)
            is_waiting = True
        await asyncio.sleep(PROVISIONED_S)


async def run_feed(feed: Feed, settings: Settings, on_wait: Callable[[str], None]) -> None:
    """Let a feed read the log from its end on, until cancelled; raise what ends reading.

    settings: those of the user `feed`.
    on_wait: as for `open_session`.
    """
    connection = await connect(
        settings.url, "nodepool reader", patience_s=None, access=settings.access
    )
    connection.on_disconnect.append(feed.part_all)
    connection.on_server_lost.append(feed.part_all)
    try:
        log = await _await_streams(connection, settings.replicas, on_wait)
        start = await last_position(connection, STREAM) + 1
        verify = partial(verify_log, connection, log, is_whole=True)
        reader = Reader(connection, STREAM, [], start=start, wants=lambda _: True, verify=verify)
        reader.metadata = {VERSION: version_of()}
        await feed.run(reader, log)
    finally:
        with suppress(NatsError, OSError):
            await connection.close()
