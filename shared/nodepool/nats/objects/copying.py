"""Storing the snapshot of a service that was made on another bus."""

from collections.abc import AsyncIterable

from nodepool.nats.log.api import publish
from nodepool.nats.log.streams import SNAPSHOTS, provision_stream, streams
from nodepool.nats.objects.snapshots import Manifest, chunk_subject, manifest_subject
from nodepool.nats.wire.connection import Connection


async def store_copy(
    connection: Connection, service: str, manifest: Manifest, chunks: AsyncIterable[bytes]
) -> None:
    """Store the chunks of a snapshot, and its manifest last; the service has none there.

    chunks: as they were stored on the other bus.
    Raises ServerRefusal, Conflict, InDoubt or an error of the client.
    """
    await provision_stream(connection, SNAPSHOTS, streams()[SNAPSHOTS])
    number = 0
    async for chunk in chunks:
        await publish(connection, chunk_subject(service, manifest.id, number), chunk)
        number += 1
    content = manifest.model_copy(update={"chunks": number}).model_dump_json().encode()
    await publish(connection, manifest_subject(service), content)
