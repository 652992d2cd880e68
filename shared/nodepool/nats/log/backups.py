"""Backing up and restoring a whole stream with the server's snapshot and restore API.

The bytes are in the server's own compressed format; a client does not interpret them. See
https://docs.nats.io/running-a-nats-service/nats_admin/jetstream_admin/disaster_recovery.
"""

import json
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping

from nodepool.nats.log.api import Json, parse_reply
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import InDoubt
from nodepool.nats.wire.library import Msg, NatsError
from nodepool.nats.wire.waiting import heeding

Write = Callable[[bytes], Awaitable[None]]
CHUNK_BYTES = 128 << 10
"""How many bytes one message carries."""
BEGIN_S = 120.0
"""How long a server may take before it sends the first chunk, or after it has received the last.

The time for the bytes of the stream, see SLOWEST_BYTES_S, is added.
"""
SLOWEST_BYTES_S = 5 << 20
"""How many bytes of a stream a server checks per second, at least."""
SILENCE_S = 30.0
"""How long a server may be silent between two chunks."""


async def snapshot(client: BusClient, stream: str, size: int, write: Write) -> Json:
    """Pass the whole stream, as it is now, to `write` in chunks; return its `config` and `state`.

    size: the bytes of the stream; the server reads them all before it sends the first chunk.
    The server waits until each chunk is written, so memory is bounded. Raises ServerRefusal, or
    InDoubt if the server falls silent or ends the snapshot early; errors of `write` propagate.
    """
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        body = {
            "deliver_subject": inbox,
            "no_consumers": True,
            "chunk_size": CHUNK_BYTES,
            "jsck": True,
        }
        info = await _request_json(
            client, f"$JS.API.STREAM.SNAPSHOT.{stream}", body, patience_s(size)
        )
        while (chunk := await _next_chunk(subscription.next_msg)) is not None:
            await write(chunk.data)
            if chunk.reply:
                await client.publish(chunk.reply)
        return info
    finally:
        await subscription.unsubscribe()


async def _next_chunk(next_message: Callable[[float], Awaitable[Msg]]) -> Msg | None:
    """Return the next chunk; None after the last chunk."""
    try:
        message = await heeding(next_message(SILENCE_S))
    except (NatsError, OSError) as error:
        raise InDoubt(f"the server has sent a part only: {error}") from error
    if message.data:
        return message
    headers = message.headers or {}
    if headers.get("Status", "204") != "204":
        text = headers.get("Description") or headers["Status"]
        raise InDoubt(f"the server has sent a part only: {text}")
    return None


async def restore(
    client: BusClient,
    stream: str,
    info: Mapping[str, object],
    chunks: AsyncIterable[bytes],
    size: int,
) -> Json:
    """Create a stream from the chunks of `snapshot`, or of `packing`; return its state there.

    size: the bytes of the stream, which the server indexes after the last chunk.

    The stream does not exist until it is complete. Raises ServerRefusal, such as for a stream that
    exists already, or InDoubt if the server falls silent.
    """
    body = {"config": info["config"], "state": info["state"]}
    begun = await _request_json(client, f"$JS.API.STREAM.RESTORE.{stream}", body, patience_s(0))
    subject = str(begun["deliver_subject"])
    async for chunk in chunks:
        reply = await _request_reply(client, subject, chunk, SILENCE_S)
        if reply.data:
            parse_reply(reply)
    done = parse_reply(await _request_reply(client, subject, b"", patience_s(size)))
    state = done.get("state")
    assert isinstance(state, dict), "a stream that was made has a state"
    return state


def patience_s(size: int) -> float:
    """Return how many seconds a server may be silent while it reads or makes `size` bytes."""
    return BEGIN_S + size / SLOWEST_BYTES_S


async def _request_json(client: BusClient, subject: str, body: Json, timeout_s: float) -> Json:
    return parse_reply(await _request_reply(client, subject, json.dumps(body).encode(), timeout_s))


async def _request_reply(client: BusClient, subject: str, content: bytes, timeout_s: float) -> Msg:
    try:
        return await client.request(subject, content, timeout=timeout_s)
    except (TimeoutError, NatsError, OSError) as error:
        raise InDoubt(f"the server does not go on: {error}") from error
