"""Pull consumers without acknowledgements: creating them, pulling messages, and deleting them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from nodepool.nats.log.api import Json, request
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import STREAM_NOT_FOUND, Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import Msg, NatsError

SERVICE, VERSION, REPLICA = "nodepool.service", "nodepool.version", "nodepool.replica"
"""The metadata keys of a replica's consumer: its service, its release and its mark.

A consumer that several services of a process share has the services and marks of all, in the same
order, with commas between.
"""
AGENT = "nodepool.agent"
"""The metadata key of an agent's consumer, in addition to VERSION: its `<org>/<cluster>`."""
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_OPEN_NS = 30_000_000_000
_INACTIVE_NS = 60_000_000_000
"""How long a consumer may go without a request until the server removes it."""


class Delivery(NamedTuple):
    """How a consumer delivered a message.

    consumer: the consumer's name.
    position: the position of the message in the stream.
    number: how many messages the consumer has delivered, including this message.
    nanoseconds: when the server stored the message, since 1970.
    remaining: how many more messages match the consumer's filters.
    """

    consumer: str
    position: int
    number: int
    nanoseconds: int
    remaining: int

    @property
    def time(self) -> datetime:
        """Return when the server stored the message, truncated to microseconds."""
        # Half the cost of `timedelta(microseconds=…)`, which each message read has once.
        return _EPOCH + self.nanoseconds // 1000 * _MICROSECOND


def delivery_of(reply: str) -> Delivery:
    """Return the Delivery that the reply subject of a delivered message describes.

    $JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<position>.<number>.<time>
    .<remaining> has nine tokens, or more with the domain.
    """
    tokens = reply.split(".")
    first = 5 if len(tokens) == 9 else 7
    position, number, nanoseconds, remaining = map(int, tokens[first : first + 4])
    return Delivery(tokens[first - 2], position, number, nanoseconds, remaining)


def pull_request(batch: int, heartbeat_s: float) -> bytes:
    """Return the body of a pull request for up to `batch` messages, with heartbeats when idle.

    The request stays open for 30 seconds, or until PULL_BYTES have come.
    """
    limits = {"batch": batch, "max_bytes": PULL_BYTES, "expires": _OPEN_NS}
    return json.dumps({**limits, "idle_heartbeat": int(heartbeat_s * 1e9)}).encode()


def ends_replies(message: Msg) -> bool:
    """Return whether the server sends no further reply to the pull request that this one answers.

    To a reader in another account than the stream it sends what is requested up to an empty message
    without headers, and not the messages after it.
    """
    return not (message.data or message.headers)


def missing_of(headers: Mapping[str, str]) -> int | None:
    """Return how many messages a pull request will no longer bring, by a status message.

    0 for a heartbeat; None if the pull request cannot be relied on.
    """
    match headers.get("Status"):
        case "100":
            return 0
        case "408" | "409" if "Nats-Pending-Messages" in headers:
            return int(headers["Nats-Pending-Messages"])
    return None


def kept_of(info: Mapping[str, object]) -> dict[str, object]:
    """Return the configuration in the server's description of a consumer, without metadata.

    The metadata names the release of the server, which changes with an upgrade.
    """
    config = info.get("config")
    return {k: v for k, v in config.items() if k != "metadata"} if isinstance(config, dict) else {}


def consumer_config(filters: Sequence[str], start: int, *, newest: bool) -> dict[str, object]:
    """Return the configuration of a consumer that reads from position `start` on.

    newest: if `start` is the start of the stream, deliver only the newest message per subject.
    """
    if start > 1:
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    else:
        policy = {"deliver_policy": "last_per_subject" if newest else "all"}
    chosen = {"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters}
    return {
        **chosen,
        **policy,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _INACTIVE_NS,
    }


PULL = 2_048
PULL_BYTES = 2 * 1024 * 1024
"""The most messages and bytes that the server delivers for one pull request.

What all open requests may bring is less than the server keeps for a client that does not read.
"""
GONE = frozenset({10014, STREAM_NOT_FOUND})
"""The error codes for a consumer or a stream that does not exist."""
LOOK_S = 5.0
"""How often to check that nobody has changed the consumer: a paused consumer sends only heartbeats,
and a consumer with changed filters leaves out messages."""


class Consumer:
    """A consumer on the server, and the messages that are requested from it.

    pending: how many messages awaited it when it was created.
    requested: how many requested messages may still arrive, at most.
    given_up: done once the reader needs another consumer; the result says whether that consumer
        must have filters, or None if the cost decides. An error ends reading.
    """

    def __init__(self, client: BusClient, stream: str) -> None:
        self.name = f"r{os.urandom(8).hex()}"
        self.inbox = client.new_inbox()
        self.pending = self.requested = self._received = 0
        self.given_up: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._config: Mapping[str, object] = {}
        self._client = client
        self._stream = stream

    def give_up(self, *, filtered: bool | None = None) -> None:
        """Read on with a new consumer, filtered or not; None chooses the cheaper way."""
        if not self.given_up.done():
            self.given_up.set_result(filtered)

    async def create(self, config: Mapping[str, object]) -> Json:
        """Create the consumer on the server; return its configuration, as `kept_of` does."""
        self._config = {"name": self.name, **config}
        info = await self._request("create", self._config)
        self.pending = int(str(info.get("num_pending", 0)))
        return kept_of(info)

    async def show(self, metadata: Mapping[str, str]) -> None:
        """Change the metadata of the consumer, which reads on meanwhile."""
        await self._request("update", {**self._config, "metadata": metadata})

    async def _request(self, action: str, config: Mapping[str, object]) -> Json:
        subject = f"$JS.API.CONSUMER.CREATE.{self._stream}.{self.name}"
        if "filter_subject" in config:  # Its subject lets the server permit some filters only.
            subject = f"{subject}.{config['filter_subject']}"
        body = {"stream_name": self._stream, "config": config, "action": action}
        return await request(self._client, subject, body)

    async def look(self, made: Json) -> None:
        """Give up the consumer once the server no longer has it as it was made."""
        subject = f"$JS.API.CONSUMER.INFO.{self._stream}.{self.name}"
        while not self.given_up.done():
            await asyncio.sleep(LOOK_S)
            try:
                if kept_of(await request(self._client, subject)) != made:
                    self.give_up()
            except ServerRefusal as refusal:  # Other errors pass, as during elections.
                if refusal.code in GONE:
                    self.give_up()
            except (Conflict, InDoubt, NatsError, OSError):
                continue  # A missing reply means nothing; the reader notices a silent server.

    async def pull(self, room: int, heartbeat_s: float) -> None:
        """Request more messages while `room` for another request remains."""
        while self.requested <= room - PULL and not self.given_up.done():
            self.requested += PULL
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self.name}"
            content = pull_request(PULL, heartbeat_s)
            try:
                await self._client.publish(subject, content, reply=self.inbox)
            except (NatsError, OSError):
                return

    def took(self, delivery: Delivery) -> bool:
        """Count a message; return False if a message before it is missing."""
        self._received += 1
        self.requested -= 1
        return delivery.number == self._received


@asynccontextmanager
async def consume(
    client: BusClient,
    stream: str,
    config: Mapping[str, object],
    receive: Callable[[Consumer, Msg], Awaitable[None]],
) -> AsyncIterator[Consumer]:
    """Create a consumer for the time of the context; no message comes before the first `pull`.

    config: as `consumer_config` returns it.
    receive: awaited for each message that arrives.
    """
    made = Consumer(client, stream)
    subscription = await client.subscribe(
        made.inbox, cb=partial(receive, made), pending_msgs_limit=0, pending_bytes_limit=0
    )
    try:
        looking = asyncio.create_task(made.look(await made.create(config)))
        try:
            yield made
        finally:
            made.give_up()
            looking.cancel()
            if client.is_connected:  # The server would forget the consumer only after a while.
                with suppress(NatsError, OSError):
                    await client.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{made.name}")
    finally:
        with suppress(NatsError, OSError):
            await subscription.unsubscribe()
